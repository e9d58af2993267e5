//! The same instance id is not the same process: what a term tells apart, and what the id alone may do.

use crate::{
    lock::{Claim, IfExpired, Term},
    testkit::{
        bench::Bench,
        case::{Case, Step, case, ensure},
    },
};

use super::time::not_early;

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        a_claim_by_term_keeps_its_term,
        "who claims by a term is granted the lock under that term, keeps it, and can release it"
    ),
    case!(
        Leasewarden,
        a_twin_with_another_term_is_somebody_else,
        "the same instance id under another term is somebody else, in another service and in the same"
    ),
    case!(
        Leasewarden,
        a_twin_waits_for_the_expiry,
        "a twin that claims by a term of its own is granted the lock when it has expired, and not before"
    ),
    case!(
        Leasewarden,
        the_same_id_elsewhere_supersedes_the_older_grant,
        "who claims by its id alone gets its lock in another service at once, under a new term; the older grant cannot be extended"
    ),
    case!(
        Leasewarden,
        an_extension_from_elsewhere_is_a_new_term,
        "an extension by id alone from a service that did not write the term is a new term with a higher token"
    ),
    case!(
        Leasewarden,
        instance_ids_are_compared_exactly,
        "instance ids that differ in case or in blanks are different instances, and the state shows them as given"
    ),
];

async fn a_claim_by_term_keeps_its_term(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let (ttl, term) = (b.long()?, Term::random());
    let claim = Claim::Term(term.clone());
    let acquisition = a.acquisition(&stream, ttl).claim(claim.clone());
    let first = a.must_get(acquisition.clone(), "a free lock, by a term").await?;
    let again = a.must_get(acquisition, "its own lock again, by its term").await?;
    let extension = a.extension(&stream, ttl).claim(claim.clone());
    let kept = a.must_extend(extension, "its own lock, by its term").await?;
    for grant in [&first, &again, &kept] {
        ensure(grant.term == term, || {
            format!("claimed by term {term}, granted under {}", grant.term)
        })?;
        ensure(grant.token == first.token, || {
            format!(
                "one term, and two tokens: {:?} and {:?}",
                first.token, grant.token
            )
        })?;
    }
    a.must_release(&stream, claim).await?;
    let request = other.acquisition(&stream, ttl);
    other
        .wait_for(&b, request, b.short()?, "that A released by its term")
        .await?;
    Ok(())
}

async fn a_twin_with_another_term_is_somebody_else(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let (ttl, own) = (b.long()?, Claim::Term(Term::random()));
    let acquisition = a.acquisition(&stream, ttl).claim(own.clone());
    let grant = a.must_get(acquisition, "a free lock, by a term").await?;
    let before = a.must_see(&stream).await?;
    b.a_while().await;
    let why = "a lock that its twin holds under another term";
    for service in [0, 1] {
        let twin = b.actor_with_id(service, "A's twin", a.instance().as_str())?;
        let claim = Claim::Term(Term::random());
        twin.must_not_get(twin.acquisition(&stream, ttl).claim(claim.clone()), why)
            .await?;
        let extension = twin.extension(&stream, ttl).claim(claim.clone());
        twin.must_not_extend(extension.clone(), why).await?;
        twin.must_not_extend(extension.if_expired(IfExpired::TakeAgain), why)
            .await?;
        twin.must_not_release(&stream, claim, why).await?;
    }
    let after = a.must_see(&stream).await?;
    ensure(before == after, || {
        format!("what a twin asked changed the lock from {before:?} to {after:?}")
    })?;
    let extension = a.extension(&stream, ttl).claim(own);
    let kept = a
        .must_extend(extension, "its own lock, by its term, after its twin had asked")
        .await?;
    ensure(kept.term == grant.term, || {
        "what a twin asked ended A's term".into()
    })
}

async fn a_twin_waits_for_the_expiry(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.short()?;
    let twin = b.actor_with_id(1, "A's twin", a.instance().as_str())?;
    let sent = a.now();
    let acquisition = a.acquisition(&stream, ttl).claim(Claim::Term(Term::random()));
    let first = a.must_get(acquisition, "a free lock, by a term").await?;
    let term = Term::random();
    let request = twin
        .acquisition(&stream, b.long()?)
        .claim(Claim::Term(term.clone()));
    let taken = twin
        .wait_for(&b, request, ttl, "that its twin left to expire")
        .await?;
    not_early(&b, ttl, sent, a.now())?;
    ensure(taken.term == term, || {
        "the twin got another term than it claimed".into()
    })?;
    ensure(first.token.is_none() || taken.token > first.token, || {
        format!(
            "the twin's token {:?} is not higher than {:?}",
            taken.token, first.token
        )
    })
}

async fn the_same_id_elsewhere_supersedes_the_older_grant(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.long()?;
    let restarted = b.actor_with_id(1, "A after a restart", a.instance().as_str())?;
    let older = a.must_acquire(&stream, ttl, "a free lock").await?;
    let newer = restarted
        .must_acquire(&stream, ttl, "the lock that its id holds")
        .await?;
    superseded(&older, &newer)?;
    let late = a.extension(&stream, ttl).claim(Claim::Term(older.term));
    a.must_not_extend(late, "by its old term a lock that its id has got elsewhere since")
        .await?;
    Ok(())
}

async fn an_extension_from_elsewhere_is_a_new_term(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.long()?;
    let elsewhere = b.actor_with_id(1, "A elsewhere", a.instance().as_str())?;
    let older = a.must_acquire(&stream, ttl, "a free lock").await?;
    let extension = elsewhere.extension(&stream, ttl);
    let newer = elsewhere
        .must_extend(extension, "the lock that its id holds")
        .await?;
    superseded(&older, &newer)?;
    let late = a.extension(&stream, ttl).claim(Claim::Term(older.term));
    a.must_not_extend(
        late,
        "by its old term a lock that its id has extended elsewhere since",
    )
    .await?;
    Ok(())
}

fn superseded(older: &crate::lock::Grant, newer: &crate::lock::Grant) -> Step {
    ensure(newer.term != older.term, || {
        "two services hold grants under the same term".into()
    })?;
    ensure(older.token.is_none() || newer.token > older.token, || {
        format!(
            "two services hold grants with tokens {:?} and then {:?}",
            older.token, newer.token
        )
    })
}

async fn instance_ids_are_compared_exactly(b: Bench) -> Step {
    let base = b.actor(0, "Host:App:1")?.instance().to_string();
    let others = [
        base.to_lowercase(),
        base.to_uppercase(),
        format!("{base} "),
        format!(" {base}"),
        format!("{base}🦀"),
    ];
    let stream = b.stream()?;
    let a = b.actor_with_id(0, &base, &base)?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    for (service, id) in others.iter().enumerate() {
        let other = b.actor_with_id(service, id, id)?;
        other
            .must_not_acquire(&stream, b.long()?, &format!("a lock that {base:?} holds"))
            .await?;
    }
    for id in std::iter::once(&base).chain(&others) {
        let (stream, actor) = (b.stream()?, b.actor_with_id(0, id, id)?);
        actor.must_acquire(&stream, b.long()?, "a free lock").await?;
        let seen = actor.must_see(&stream).await?.instance;
        ensure(seen == *id, || {
            format!("{id:?} holds the lock, and the state shows {seen:?}")
        })?;
    }
    Ok(())
}
