//! Fencing tokens, terms and counters: what rises, and what stays while the holder stays.

use crate::{
    lock::{Claim, FencingToken, Grant},
    testkit::{
        actor::{Actor, fail},
        bench::Bench,
        case::{Case, Step, Stop, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        acquiring_again_keeps_term_token_and_times,
        "a holder that acquires its live lock again keeps term, token, transitions and the time since when it holds"
    ),
    case!(
        Leasewarden,
        renewing_keeps_term_token_and_times,
        "a renewal keeps term, token, transitions and the time since when the holder holds"
    ),
    case!(
        Leasewarden,
        tokens_rise_over_releases,
        "each grant after a release has a higher token, whoever gets it"
    ),
    case!(
        Leasewarden,
        tokens_rise_over_an_expiry,
        "the grant after an expiry has a higher token"
    ),
    case!(
        Leasewarden,
        tokens_rise_over_a_deletion,
        "the grant after the record was deleted has a higher token"
    ),
    case!(
        Leasewarden,
        the_state_shows_the_token,
        "the state of a held lock shows the token of its grant"
    ),
    case!(
        Leasewarden,
        transitions_count_changes_of_holder,
        "transitions rise when another holder follows"
    ),
];

fn token(grant: &Grant) -> Step<FencingToken> {
    grant
        .token
        .ok_or_else(|| Stop::Skipped("the service issues no tokens".into()))
}

/// That the later grant has a token too, and a higher one.
fn rises(earlier: FencingToken, later: &Grant, over: &str) -> Step<FencingToken> {
    match later.token {
        Some(token) if token > earlier => Ok(token),
        Some(token) => fail(format!(
            "over {over} the token went from {earlier} to {token}, which is not higher"
        )),
        None => fail(format!(
            "before {over} the token was {earlier}, and afterwards there is none"
        )),
    }
}

async fn same_tenure<F>(b: Bench, again: impl FnOnce(Actor, Bench, crate::lock::StreamName) -> F) -> Step
where
    F: Future<Output = Step<Grant>>,
{
    let (a, other, stream) = b.two()?;
    let first = a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let before = other.must_see(&stream).await?;
    b.a_while().await;
    let second = again(a, b.clone(), stream.clone()).await?;
    let after = other.must_see(&stream).await?;
    ensure(second.term == first.term, || {
        "the same service goes on while its grant is valid, and got another term".into()
    })?;
    ensure(second.token == first.token, || {
        format!(
            "the holder stayed, and its token went from {:?} to {:?}",
            first.token, second.token
        )
    })?;
    ensure(
        second.acquired_at == first.acquired_at && after.acquired_at == before.acquired_at,
        || {
            format!(
                "the holder stayed, and the time since when it holds went from {:?} to {:?} (in the state from {:?} to {:?})",
                first.acquired_at, second.acquired_at, before.acquired_at, after.acquired_at
            )
        },
    )?;
    ensure(after.transitions == before.transitions, || {
        format!(
            "the holder stayed, and the transitions went from {:?} to {:?}",
            before.transitions, after.transitions
        )
    })
}

async fn acquiring_again_keeps_term_token_and_times(b: Bench) -> Step {
    same_tenure(b, async |a: Actor, b: Bench, stream| {
        a.must_acquire(&stream, b.long()?, "its own lock again").await
    })
    .await
}

async fn renewing_keeps_term_token_and_times(b: Bench) -> Step {
    same_tenure(b, async |a: Actor, b: Bench, stream| {
        a.must_extend(a.extension(&stream, b.long()?), "its own lock")
            .await
    })
    .await
}

async fn tokens_rise_over_releases(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let first = a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let mut last = token(&first)?;
    let mut holder = a.clone();
    for next in [&a, &other, &other, &a] {
        holder.must_release(&stream, Claim::Instance).await?;
        let request = next.acquisition(&stream, b.long()?);
        let taken = next
            .wait_for(&b, request, b.short()?, "that was released")
            .await?;
        last = rises(last, &taken, "a release")?;
        holder = next.clone();
    }
    Ok(())
}

async fn tokens_rise_over_an_expiry(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    let first = a.must_acquire(&stream, ttl, "a free lock").await?;
    let earlier = token(&first)?;
    let request = other.acquisition(&stream, b.long()?);
    let taken = other.wait_for(&b, request, ttl, "that A left to expire").await?;
    rises(earlier, &taken, "an expiry").map(drop)
}

async fn tokens_rise_over_a_deletion(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    let mut last = token(&a.must_acquire(&stream, ttl, "a free lock").await?)?;
    for next in [&other, &a] {
        b.delete(&stream).await?;
        // Who saw the deleted lock alive may wait for its end, as for any expiry.
        let request = next.acquisition(&stream, ttl);
        let taken = next
            .wait_for(&b, request, ttl, "whose record was deleted")
            .await?;
        last = rises(last, &taken, "a deletion")?;
    }
    Ok(())
}

async fn the_state_shows_the_token(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let grant = a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let token = token(&grant)?;
    let seen = other.must_see(&stream).await?.token;
    ensure(seen == Some(token), || {
        format!("the grant's token is {token}, and the state shows {seen:?}")
    })
}

async fn transitions_count_changes_of_holder(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let Some(before) = a.must_see(&stream).await?.transitions else {
        return Err(Stop::Skipped("the service counts no transitions".into()));
    };
    a.must_release(&stream, Claim::Instance).await?;
    let request = other.acquisition(&stream, b.long()?);
    other.wait_for(&b, request, b.short()?, "that A released").await?;
    let after = other.must_see(&stream).await?.transitions;
    ensure(after == Some(before + 1), || {
        format!("one change of holder took the transitions from {before} to {after:?}")
    })
}
