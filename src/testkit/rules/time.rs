//! Expiry, from both sides: never early for a contender, never late for the holder, and never undone.

use crate::{
    lock::{IfExpired, Moment, Refusal, Ttl},
    testkit::{
        actor::Actor,
        bench::Bench,
        case::{Case, Step, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        a_lock_is_never_granted_before_it_expires,
        "while a TTL has not passed since the holder's write was sent, nobody else is granted the lock"
    ),
    case!(
        Leasewarden,
        a_grant_ends_before_a_contender_may_take,
        "the moment until which a holder may act lies before the moment at which another is granted the lock"
    ),
    case!(
        Leasewarden,
        renewing_an_expired_lock_is_refused,
        "contract A's renew of a lock that expired is refused, though nobody took it"
    ),
    case!(
        Leasewarden,
        an_expired_lock_is_taken_again_when_asked_to,
        "an extension that may take again gets an expired lock that nobody took, under a new term and a higher token"
    ),
    case!(
        Leasewarden,
        a_spent_grant_never_revives,
        "once a grant is over, no renewal makes it valid again, whatever the record says"
    ),
    case!(
        Leasewarden,
        acquiring_after_expiry_starts_a_new_term,
        "who acquires its own lock again after its grant was over has a new term and a higher token"
    ),
    case!(
        Leasewarden,
        a_renewal_outlives_the_first_ttl,
        "a renewed lock is still held when the TTL it was acquired with has passed"
    ),
    case!(
        Leasewarden,
        a_shorter_ttl_binds_at_once,
        "an extension by a shorter TTL shortens the grant, and others get the lock that much earlier"
    ),
];

/// A's lock with a TTL that it lets expire, and B waiting for it from the start.
struct Swap {
    ttl: Ttl,
    /// On A's clock, before A's write was sent.
    sent: Moment,
    /// The moment until which A might act.
    valid_until: Moment,
    /// B's taking it; the reply is on A's clock, so that no two clocks are compared.
    replied: Moment,
}

async fn swap(b: &Bench, ttl: Ttl) -> Step<Swap> {
    let (a, other, stream) = b.two()?;
    let sent = a.now();
    let grant = a.must_acquire(&stream, ttl, "a free lock").await?;
    let request = other.acquisition(&stream, b.long()?);
    other.wait_for(b, request, ttl, "that A left to expire").await?;
    Ok(Swap {
        ttl,
        sent,
        valid_until: grant.valid_until,
        replied: a.now(),
    })
}

pub(super) fn not_early(b: &Bench, ttl: Ttl, sent: Moment, replied: Moment) -> Step {
    let passed = replied.since(sent);
    ensure(passed + b.tolerance(ttl) >= ttl.as_duration(), || {
        format!("another was granted the lock {passed:?} after the write that held it for {ttl} was sent")
    })
}

async fn a_lock_is_never_granted_before_it_expires(b: Bench) -> Step {
    let swap = swap(&b, b.short()?).await?;
    not_early(&b, swap.ttl, swap.sent, swap.replied)
}

async fn a_grant_ends_before_a_contender_may_take(b: Bench) -> Step {
    let swap = swap(&b, b.short()?).await?;
    ensure(swap.valid_until <= swap.replied, || {
        format!(
            "another was granted the lock while its holder might act for {:?} more; the TTL was {}",
            swap.valid_until.since(swap.replied),
            swap.ttl
        )
    })
}

async fn renewing_an_expired_lock_is_refused(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.short()?;
    a.must_acquire(&stream, ttl, "a free lock").await?;
    b.outlast(ttl).await;
    let refusal = a
        .must_not_extend(a.extension(&stream, b.long()?), "its own lock, which has expired")
        .await?;
    ensure(!matches!(refusal, Refusal::HeldBy { .. }), || {
        format!("nobody took the lock, and the refusal says: {refusal}")
    })
}

async fn an_expired_lock_is_taken_again_when_asked_to(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    let first = a.must_acquire(&stream, ttl, "a free lock").await?;
    b.outlast(ttl).await;
    let request = a.extension(&stream, b.long()?).if_expired(IfExpired::TakeAgain);
    let again = a
        .must_extend(
            request,
            "its own expired lock that nobody took, ready to take it again",
        )
        .await?;
    ensure(again.term != first.term, || {
        "the expired lock was taken again under its old term".into()
    })?;
    ensure(first.token.is_none() || again.token > first.token, || {
        format!(
            "the expired lock was taken again with token {:?} after {:?}",
            again.token, first.token
        )
    })?;
    other
        .must_not_acquire(&stream, b.long()?, "a lock that A took again")
        .await?;
    Ok(())
}

async fn a_spent_grant_never_revives(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.short()?;
    let grant = a.must_acquire(&stream, ttl, "a free lock").await?;
    until_over(&b, &a, grant.valid_until).await;
    a.must_not_extend(
        a.extension(&stream, b.long()?),
        "its own lock at the moment its grant was over",
    )
    .await?;
    Ok(())
}

/// Waits for the end of a grant, on the clock that it speaks of, and asks as soon after it as can be.
async fn until_over(b: &Bench, actor: &Actor, end: Moment) {
    let left = end.since(actor.now());
    // A grant that never ends is another case's failure; here it must not hang the run.
    b.wait(left.min(std::time::Duration::from_secs(60))).await;
}

async fn acquiring_after_expiry_starts_a_new_term(b: Bench) -> Step {
    let (a, _, stream) = b.two()?;
    let ttl = b.short()?;
    let first = a.must_acquire(&stream, ttl, "a free lock").await?;
    b.outlast(ttl).await;
    let again = a
        .must_acquire(&stream, b.long()?, "its own lock again, which has expired")
        .await?;
    ensure(again.term != first.term, || {
        "it got its expired lock again under the old term, so the old grant seems valid again".into()
    })?;
    ensure(first.token.is_none() || again.token > first.token, || {
        format!(
            "it got its expired lock again with token {:?} after {:?}",
            again.token, first.token
        )
    })
}

async fn a_renewal_outlives_the_first_ttl(b: Bench) -> Step {
    // Long enough that a stalled machine still renews in time; should it not, the renewal is refused by right.
    let ttl = Ttl::new(b.short()?.as_duration() * 2).unwrap_or(b.short()?);
    for _ in 0..5 {
        let (a, other, stream) = b.two()?;
        let sent = b.mark();
        let first = a.must_acquire(&stream, ttl, "a free lock").await?;
        let outcome = a.extend(a.extension(&stream, b.long()?)).await?;
        let in_time = a.now() < first.valid_until;
        let Some(renewed) = outcome.granted() else {
            ensure(!in_time, || "A renewed its live lock, and was refused".into())?;
            continue;
        };
        ensure(renewed.valid_until > first.valid_until, || {
            format!(
                "a renewal by {} did not move the end of the grant",
                b.long().map_or_else(|_| String::new(), |t| t.to_string())
            )
        })?;
        let enough = ttl.as_duration() + b.step(ttl) * 2;
        while b.since(sent) < enough {
            other
                .must_not_acquire(&stream, b.long()?, "a lock that A had renewed")
                .await?;
            b.wait(b.step(ttl)).await;
        }
        other
            .must_not_acquire(
                &stream,
                b.long()?,
                "a lock that A had renewed, after the TTL it was acquired with",
            )
            .await?;
        return Ok(());
    }
    Err(crate::testkit::case::Stop::Skipped(format!(
        "the machine was too slow to renew a lock of {ttl} in time, five times over"
    )))
}

async fn a_shorter_ttl_binds_at_once(b: Bench) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    let first = a.must_acquire(&stream, b.long()?, "a free lock").await?;
    let shorter = a
        .must_extend(a.extension(&stream, ttl), "its own lock by a shorter TTL")
        .await?;
    let replied = a.now();
    ensure(
        shorter.valid_until < first.valid_until && shorter.valid_until <= replied + ttl.as_duration(),
        || {
            format!(
                "after an extension by {ttl} the grant is valid for {:?}",
                shorter.valid_until.since(replied)
            )
        },
    )?;
    let request = other.acquisition(&stream, b.long()?);
    other
        .wait_for(&b, request, ttl, "whose holder extended it by a shorter TTL")
        .await?;
    Ok(())
}
