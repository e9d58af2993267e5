//! Contract A: FlowWarden's thirteen rules of acquiring, renewing, releasing and reading, and its three of expiry.

use crate::{
    lock::{Claim, LockServiceExt, Refusal},
    testkit::{
        actor::fail,
        bench::Bench,
        case::{Case, Step, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        ContractA,
        a_free_lock_is_granted,
        "a lock that nobody holds is granted to who asks"
    ),
    case!(
        ContractA,
        a_held_lock_is_refused_to_others,
        "a held lock is refused to others, and the refusal names the holder"
    ),
    case!(
        ContractA,
        the_holder_may_acquire_again,
        "who holds a lock and asks for it again is granted it"
    ),
    case!(ContractA, the_holder_may_renew, "the holder may renew"),
    case!(
        ContractA,
        renewing_anothers_lock_is_refused,
        "only the holder may renew"
    ),
    case!(
        ContractA,
        renewing_nothing_is_refused,
        "a lock that nobody holds cannot be renewed"
    ),
    case!(
        ContractA,
        a_release_lets_another_in,
        "a released lock is granted to who asks next, long before it would have expired"
    ),
    case!(
        ContractA,
        a_release_by_another_changes_nothing,
        "a release by who does not hold the lock changes nothing"
    ),
    case!(
        ContractA,
        the_state_shows_the_holder,
        "the state of a held lock shows its holder and times that are true"
    ),
    case!(
        ContractA,
        the_state_of_nothing_is_empty,
        "the state of a lock that nobody ever held, or that was released, is empty"
    ),
    case!(
        ContractA,
        the_leader_is_the_holder,
        "the current leader is who holds the lock"
    ),
    case!(
        ContractA,
        the_leader_of_nothing_is_empty,
        "a lock that nobody holds has no leader"
    ),
    case!(
        ContractA,
        streams_are_independent,
        "locks of different streams have nothing to do with each other"
    ),
    case!(
        ContractA,
        an_expired_lock_goes_to_another,
        "an expired lock is granted to another who asks, in time"
    ),
    case!(
        ContractA,
        a_deposed_holder_cannot_renew,
        "who lost an expired lock to another cannot renew it any more"
    ),
    case!(
        ContractA,
        the_state_of_an_expired_lock_is_empty,
        "the state of an expired lock is empty, and it has no leader"
    ),
];

async fn a_free_lock_is_granted(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let before = a.now();
    let grant = a.must_acquire(&stream, b.long()?, "a free lock").await?;
    ensure(grant.stream == stream && grant.instance == *a.instance(), || {
        format!("the grant is for {} on {}", grant.instance, grant.stream)
    })?;
    ensure(grant.valid_until > before, || {
        "the grant was over before it was asked for".into()
    })
}

async fn a_held_lock_is_refused_to_others(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    for asker in [b.actor(0, "C")?, other] {
        let refusal = asker
            .must_not_acquire(&stream, b.long()?, "a lock that A holds")
            .await?;
        let named = matches!(&refusal, Refusal::HeldBy { holder, .. } if *holder == a.instance().as_str());
        ensure(named, || {
            format!(
                "the refusal does not name the holder {}; it says: {refusal}",
                a.instance()
            )
        })?;
    }
    Ok(())
}

async fn the_holder_may_acquire_again(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    a.must_acquire(&stream, b.long()?, "its own lock again").await?;
    other
        .must_not_acquire(&stream, b.long()?, "a lock that A acquired twice")
        .await?;
    Ok(())
}

async fn the_holder_may_renew(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    a.must_extend(a.extension(&stream, b.long()?), "its own lock")
        .await?;
    other
        .must_not_acquire(&stream, b.long()?, "a lock that A renewed")
        .await?;
    Ok(())
}

async fn renewing_anothers_lock_is_refused(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    other
        .must_not_extend(other.extension(&stream, b.long()?), "a lock that A holds")
        .await?;
    Ok(())
}

async fn renewing_nothing_is_refused(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_not_extend(a.extension(&stream, b.long()?), "a lock that nobody ever held")
        .await?;
    other
        .must_acquire(&stream, b.long()?, "what a refused renewal must leave free")
        .await?;
    Ok(())
}

async fn a_release_lets_another_in(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    // B has seen the lock held: what it remembers of it must not outlive the release.
    other
        .must_not_acquire(&stream, b.long()?, "a lock that A holds")
        .await?;
    a.must_release(&stream, Claim::Instance).await?;
    other
        .wait_for(
            &b,
            other.acquisition(&stream, b.long()?),
            b.short()?,
            "that A released",
        )
        .await?;
    a.must_not_acquire(&stream, b.long()?, "a lock that B took after A's release")
        .await?;
    Ok(())
}

async fn a_release_by_another_changes_nothing(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    other
        .must_not_release(&stream, Claim::Instance, "a lock that A holds")
        .await?;
    b.actor(2, "C")?
        .must_not_acquire(&stream, b.long()?, "a lock that A holds, after B's release")
        .await?;
    a.must_extend(a.extension(&stream, b.long()?), "its own lock after B's release")
        .await?;
    Ok(())
}

async fn the_state_shows_the_holder(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    for reader in [a.clone(), other] {
        let state = reader.must_see(&stream).await?;
        ensure(state.instance == a.instance().as_str(), || {
            format!(
                "the state shows {}, but {} holds it",
                state.instance,
                a.instance()
            )
        })?;
        ensure(state.stream == stream, || {
            format!("the state is of stream {}, not {stream}", state.stream)
        })?;
        let now = reader.service().clock().wall();
        ensure(
            state.expires_at > now && state.acquired_at < state.expires_at,
            || format!("the times of a live lock make no sense now ({now:?}): {state:?}"),
        )?;
    }
    Ok(())
}

async fn the_state_of_nothing_is_empty(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let seen = a.state(&stream).await?;
    ensure(seen.is_none(), || {
        format!("nobody ever held it, and the state is {seen:?}")
    })?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    a.must_release(&stream, Claim::Instance).await?;
    let seen = other.state(&stream).await?;
    ensure(seen.is_none(), || {
        format!("it was released, and the state is {seen:?}")
    })
}

async fn the_leader_is_the_holder(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let leader = other.service().current_leader(&stream).await;
    ensure(leader.as_deref() == Some(a.instance().as_str()), || {
        format!("{} holds the lock, and the leader is {leader:?}", a.instance())
    })
}

async fn the_leader_of_nothing_is_empty(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let leader = a.service().current_leader(&stream).await;
    ensure(leader.is_none(), || {
        format!("nobody ever held it, and the leader is {leader:?}")
    })
}

async fn streams_are_independent(b: Bench) -> Step {
    let (a, other, one) = b.two()?;
    let two = b.stream()?;
    a.must_acquire(&one, b.long()?, "a free lock").await?;
    other
        .must_acquire(
            &two,
            b.long()?,
            "a free lock, while A holds that of another stream",
        )
        .await?;
    a.must_not_acquire(
        &two,
        b.long()?,
        "a lock that B holds, while it holds that of another stream",
    )
    .await?;
    a.must_release(&one, Claim::Instance).await?;
    let seen = b.actor(2, "C")?.must_see(&two).await?;
    ensure(seen.instance == other.instance().as_str(), || {
        format!(
            "A released its own stream, and that of B is held by {}",
            seen.instance
        )
    })
}

async fn an_expired_lock_goes_to_another(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    a.must_acquire(&stream, ttl, "a free lock").await?;
    other
        .wait_for(
            &b,
            other.acquisition(&stream, b.long()?),
            ttl,
            "that A left to expire",
        )
        .await?;
    a.must_not_acquire(&stream, b.long()?, "a lock that B took when A's expired")
        .await?;
    Ok(())
}

async fn a_deposed_holder_cannot_renew(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    a.must_acquire(&stream, ttl, "a free lock").await?;
    other
        .wait_for(
            &b,
            other.acquisition(&stream, b.long()?),
            ttl,
            "that A left to expire",
        )
        .await?;
    let before = other.must_see(&stream).await?;
    a.must_not_extend(
        a.extension(&stream, b.long()?),
        "a lock that B took when A's expired",
    )
    .await?;
    let after = other.must_see(&stream).await?;
    ensure(before == after, || {
        format!("A's late renewal changed B's lock from {before:?} to {after:?}")
    })
}

async fn the_state_of_an_expired_lock_is_empty(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    a.must_acquire(&stream, ttl, "a free lock").await?;
    let mark = b.mark();
    for reader in [other, a] {
        while let Some(state) = reader.state(&stream).await? {
            if b.since(mark) > b.patience(ttl) {
                return fail(format!(
                    "{:.1?} after its last write a lock with a TTL of {ttl} still shows: {state:?}",
                    b.since(mark)
                ));
            }
            b.wait(b.step(ttl)).await;
        }
        let leader = reader.service().current_leader(&stream).await;
        ensure(leader.is_none(), || {
            format!("the lock is expired, and its leader is {leader:?}")
        })?;
    }
    Ok(())
}
