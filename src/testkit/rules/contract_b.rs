//! Contract B: Flamingock's `upsert` (a) to (d), `extendLock`, `releaseLock` and `getLockInfo`, through the facade.
//!
//! The contract reads expired records; a service that cannot tell them is not held to it.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{
        Grant, StreamName, Ttl,
        flamingock::{Flamingock, FlamingockError},
    },
    testkit::{
        actor::{Actor, fail},
        bench::Bench,
        case::{Case, Step, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        ContractB,
        upsert_inserts_a_missing_lock,
        "upsert (d): a missing lock is inserted"
    ),
    case!(
        ContractB,
        upsert_refreshes_ones_own_lock,
        "upsert (a): the owner's own lock is refreshed"
    ),
    case!(
        ContractB,
        upsert_refreshes_ones_own_expired_lock,
        "upsert (a): the owner's own lock is refreshed also when it has expired"
    ),
    case!(
        ContractB,
        upsert_takes_over_an_expired_lock,
        "upsert (b): another's expired lock is taken over"
    ),
    case!(
        ContractB,
        upsert_of_anothers_live_lock_names_the_holder,
        "upsert (c): another's live lock is an error that names the holder and its expiry"
    ),
    case!(
        ContractB,
        extend_lock_keeps_the_owners_lock,
        "extendLock: the recorded owner keeps its lock"
    ),
    case!(
        ContractB,
        extend_lock_takes_an_expired_lock_again,
        "extendLock: the recorded owner gets its lock again when it expired and nobody took it"
    ),
    case!(
        ContractB,
        extend_lock_of_anothers_lock_is_an_error,
        "extendLock: another's lock is an error, live or taken over"
    ),
    case!(
        ContractB,
        extend_lock_of_a_free_lock_is_an_error,
        "extendLock: a missing or released lock is an error"
    ),
    case!(
        ContractB,
        release_lock_frees_the_owners_lock,
        "releaseLock: the owner's lock is free long before it would have expired"
    ),
    case!(
        ContractB,
        release_lock_leaves_others_alone,
        "releaseLock: another owner's lock is untouched"
    ),
    case!(
        ContractB,
        lock_info_shows_an_expired_record,
        "getLockInfo: the record of an expired lock that nobody took is still shown"
    ),
    case!(
        ContractB,
        lock_info_of_nothing_is_none,
        "getLockInfo: a missing or released lock has no record"
    ),
];

/// The facade over an actor's service; skips the case where the service cannot tell expired records.
async fn facade(actor: &Actor, stream: &StreamName) -> Step<Flamingock> {
    actor.record(stream).await?;
    Ok(Flamingock::new(Arc::clone(actor.service())))
}

#[derive(Clone, Copy)]
enum Call {
    Upsert,
    Extend,
}

/// Calls as the contract's callers do: an unknown outcome is asked again about.
async fn call(
    call: Call,
    actor: &Actor,
    stream: &StreamName,
    ttl: Ttl,
) -> Step<Result<Grant, FlamingockError>> {
    let locks = facade(actor, stream).await?;
    for _ in 0..40 {
        let answer = match call {
            Call::Upsert => locks.upsert(stream, actor.instance(), ttl).await,
            Call::Extend => locks.extend_lock(stream, actor.instance(), ttl).await,
        };
        if !matches!(answer, Err(FlamingockError::Unknown { .. })) {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    fail("the outcome was asked about 40 times and never known".into())
}

async fn must(what: Call, actor: &Actor, stream: &StreamName, ttl: Ttl, why: &str) -> Step<Grant> {
    match call(what, actor, stream, ttl).await? {
        Ok(grant) => Ok(grant),
        Err(error) => fail(format!("{} of {why} was an error: {error}", name(what))),
    }
}

async fn must_not(
    what: Call,
    actor: &Actor,
    stream: &StreamName,
    ttl: Ttl,
    why: &str,
) -> Step<FlamingockError> {
    match call(what, actor, stream, ttl).await? {
        Ok(grant) => fail(format!(
            "{} of {why} must be an error, and was granted to {}",
            name(what),
            grant.instance
        )),
        Err(error) => Ok(error),
    }
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Upsert => "upsert",
        Call::Extend => "extendLock",
    }
}

async fn upsert_inserts_a_missing_lock(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    let owner = other.record(&stream).await?.map(|r| r.state.instance);
    ensure(owner.as_deref() == Some(a.instance().as_str()), || {
        format!("upsert inserted {}, and the record shows {owner:?}", a.instance())
    })
}

async fn upsert_refreshes_ones_own_lock(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.short()?, "a missing lock").await?;
    let before = a.record(&stream).await?.map(|r| r.state.expires_at);
    must(Call::Upsert, &a, &stream, b.long()?, "the owner's own lock").await?;
    let after = a.record(&stream).await?.map(|r| r.state.expires_at);
    ensure(after > before, || {
        format!("upsert with a longer lease moved the expiry from {before:?} to {after:?}")
    })
}

async fn upsert_refreshes_ones_own_expired_lock(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    must(Call::Upsert, &a, &stream, ttl, "a missing lock").await?;
    b.outlast(ttl).await;
    must(
        Call::Upsert,
        &a,
        &stream,
        b.long()?,
        "the owner's own expired lock",
    )
    .await?;
    must_not(
        Call::Upsert,
        &other,
        &stream,
        b.long()?,
        "a lock that its owner refreshed",
    )
    .await?;
    Ok(())
}

async fn upsert_takes_over_an_expired_lock(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    must(Call::Upsert, &a, &stream, ttl, "a missing lock").await?;
    let mark = b.mark();
    loop {
        match call(Call::Upsert, &other, &stream, b.long()?).await? {
            Ok(_) => break,
            Err(error) => ensure(b.since(mark) <= b.patience(ttl), || {
                let waited = b.since(mark);
                format!("after {waited:.1?} upsert of another's lock with a TTL of {ttl} still says: {error}")
            })?,
        }
        b.wait(b.step(ttl)).await;
    }
    must_not(
        Call::Upsert,
        &a,
        &stream,
        b.long()?,
        "a lock that another took over",
    )
    .await?;
    Ok(())
}

async fn upsert_of_anothers_live_lock_names_the_holder(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    let error = must_not(Call::Upsert, &other, &stream, b.long()?, "another's live lock").await?;
    let FlamingockError::HeldBy {
        holder, expires_at, ..
    } = &error
    else {
        return fail(format!(
            "the error does not say that another holds it; it says: {error}"
        ));
    };
    ensure(holder == a.instance().as_str(), || {
        format!("{} holds the lock, and the error names {holder}", a.instance())
    })?;
    let now = other.service().clock().wall();
    ensure(expires_at.is_some_and(|at| at > now), || {
        format!("the error names no expiry that lies ahead of {now:?}: {expires_at:?}")
    })
}

async fn extend_lock_keeps_the_owners_lock(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    must(Call::Extend, &a, &stream, b.long()?, "the owner's own lock").await?;
    must_not(
        Call::Upsert,
        &other,
        &stream,
        b.long()?,
        "a lock that was extended",
    )
    .await?;
    Ok(())
}

async fn extend_lock_takes_an_expired_lock_again(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    must(Call::Upsert, &a, &stream, ttl, "a missing lock").await?;
    b.outlast(ttl).await;
    must(
        Call::Extend,
        &a,
        &stream,
        b.long()?,
        "the owner's expired lock that nobody took",
    )
    .await?;
    must_not(
        Call::Upsert,
        &other,
        &stream,
        b.long()?,
        "a lock that its owner took again",
    )
    .await?;
    Ok(())
}

async fn extend_lock_of_anothers_lock_is_an_error(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    let error = must_not(Call::Extend, &other, &stream, b.long()?, "another's live lock").await?;
    ensure(
        matches!(&error, FlamingockError::HeldBy { holder, .. } if holder == a.instance().as_str()),
        || format!("the error does not name {}; it says: {error}", a.instance()),
    )
}

async fn extend_lock_of_a_free_lock_is_an_error(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    must_not(
        Call::Extend,
        &a,
        &stream,
        b.long()?,
        "a lock that nobody ever held",
    )
    .await?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    facade(&a, &stream)
        .await?
        .release_lock(&stream, a.instance())
        .await;
    must_not(
        Call::Extend,
        &a,
        &stream,
        b.long()?,
        "a lock that its owner released",
    )
    .await?;
    Ok(())
}

async fn release_lock_frees_the_owners_lock(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    facade(&a, &stream)
        .await?
        .release_lock(&stream, a.instance())
        .await;
    other
        .wait_for(
            &b,
            other.acquisition(&stream, b.long()?),
            b.short()?,
            "that A released",
        )
        .await?;
    Ok(())
}

async fn release_lock_leaves_others_alone(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    let before = a.record(&stream).await?;
    facade(&other, &stream)
        .await?
        .release_lock(&stream, other.instance())
        .await;
    let after = a.record(&stream).await?;
    ensure(before.is_some() && before == after, || {
        format!("B's releaseLock changed A's record from {before:?} to {after:?}")
    })
}

async fn lock_info_shows_an_expired_record(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    must(Call::Upsert, &a, &stream, ttl, "a missing lock").await?;
    let mark = b.mark();
    loop {
        let Some(record) = other.record(&stream).await? else {
            return fail("the record of a lock that nobody released or took is gone".into());
        };
        ensure(record.state.instance == a.instance().as_str(), || {
            format!("{} holds the lock, and the record shows {record:?}", a.instance())
        })?;
        if record.expired {
            return Ok(());
        }
        ensure(b.since(mark) <= b.patience(ttl), || {
            let waited = b.since(mark);
            format!("{waited:.1?} after its last write a lock with a TTL of {ttl} is not expired: {record:?}")
        })?;
        b.wait(b.step(ttl)).await;
    }
}

async fn lock_info_of_nothing_is_none(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let seen = a.record(&stream).await?;
    ensure(seen.is_none(), || {
        format!("nobody ever held it, and the record is {seen:?}")
    })?;
    must(Call::Upsert, &a, &stream, b.long()?, "a missing lock").await?;
    facade(&a, &stream)
        .await?
        .release_lock(&stream, a.instance())
        .await;
    let seen = a.record(&stream).await?;
    ensure(seen.is_none(), || {
        format!("it was released, and the record is {seen:?}")
    })
}
