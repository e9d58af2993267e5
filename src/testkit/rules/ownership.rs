//! What belongs to whom: nothing that a stranger does moves anything, and a release ends what was.

use crate::{
    lock::{Claim, IfExpired, Term},
    testkit::{
        bench::Bench,
        case::{Case, Step, Stop, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        a_stranger_moves_nothing,
        "nothing that others ask changes the holder's lock in any visible part"
    ),
    case!(
        Leasewarden,
        a_release_ends_the_grant,
        "who released a lock can neither renew it nor take it again by an extension"
    ),
    case!(
        Leasewarden,
        a_release_of_what_is_not_held_says_so,
        "a release of a lock that nobody holds, or a second release, changes nothing and says so"
    ),
];

async fn a_stranger_moves_nothing(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.long()?;
    let grant = a.must_acquire(&stream, ttl, "a free lock").await?;
    let before = a.must_see(&stream).await?;
    b.a_while().await;
    let why = "a lock that A holds";
    for asker in [b.actor(0, "C")?, other.clone()] {
        asker.must_not_acquire(&stream, b.short()?, why).await?;
        asker
            .must_not_extend(asker.extension(&stream, b.short()?), why)
            .await?;
        let take_again = asker
            .extension(&stream, b.short()?)
            .if_expired(IfExpired::TakeAgain);
        optional(asker.must_not_extend(take_again, why).await)?;
        // Not even with the holder's own term, which anybody may have read.
        for term in [Term::random(), grant.term.clone()] {
            let claim = Claim::Term(term);
            let acquire = asker.acquisition(&stream, ttl).claim(claim.clone());
            optional(asker.must_not_get(acquire, why).await)?;
            let extend = asker.extension(&stream, ttl).claim(claim.clone());
            optional(asker.must_not_extend(extend, why).await)?;
            optional(asker.must_not_release(&stream, claim, why).await)?;
        }
        asker.must_not_release(&stream, Claim::Instance, why).await?;
        asker.state(&stream).await?;
    }
    let after = other.must_see(&stream).await?;
    ensure(before == after, || {
        format!("what others asked changed A's lock from {before:?} to {after:?}")
    })?;
    let kept = a
        .must_extend(
            a.extension(&stream, ttl),
            "its own lock, after others had asked for it",
        )
        .await?;
    ensure(kept.term == grant.term && kept.token == grant.token, || {
        "what others asked ended A's term".into()
    })
}

/// A service need not support every kind of claim; the rest of the case applies to it all the same.
fn optional<T>(step: Step<T>) -> Step<Option<T>> {
    match step {
        Ok(done) => Ok(Some(done)),
        Err(Stop::Skipped(_)) => Ok(None),
        Err(failed) => Err(failed),
    }
}

async fn a_release_ends_the_grant(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    a.must_release(&stream, Claim::Instance).await?;
    let why = "a lock that it had released";
    a.must_not_extend(a.extension(&stream, b.long()?), why).await?;
    let take_again = a.extension(&stream, b.long()?).if_expired(IfExpired::TakeAgain);
    optional(a.must_not_extend(take_again, why).await)?;
    Ok(())
}

async fn a_release_of_what_is_not_held_says_so(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_not_release(&stream, Claim::Instance, "a lock that nobody ever held")
        .await?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    a.must_release(&stream, Claim::Instance).await?;
    a.must_not_release(&stream, Claim::Instance, "a lock that it had released")
        .await?;
    let request = other.acquisition(&stream, b.long()?);
    other
        .wait_for(&b, request, b.short()?, "that A released twice")
        .await?;
    Ok(())
}
