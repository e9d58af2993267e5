//! Odd input: names that a store may fold together, and times to live that a store may round or overflow.

use std::time::Duration;

use crate::{
    lock::{BoxFuture, Claim, LockError, Outcome, StreamName, Ttl},
    testkit::{
        actor::{Actor, fail, shown},
        bench::{Bench, together},
        case::{Case, Step, Stop, case, ensure},
    },
};

use super::time::not_early;

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        odd_stream_names_are_distinct_or_refused,
        "stream names that differ in anything are different locks; a name that cannot be kept is an error, never a shared lock"
    ),
    case!(
        Leasewarden,
        odd_ttls_expire_late_never_early,
        "a TTL of 900 ms or 1.5 s may be rounded up, never down"
    ),
    case!(
        Leasewarden,
        enormous_ttls_overflow_nothing,
        "a lock for ten years, or for the longest TTL there is, is held for that long"
    ),
];

async fn odd_stream_names_are_distinct_or_refused(b: Bench) -> Step {
    let long = "x".repeat(300);
    let names = [
        "Orders",
        "orders",
        "a/b",
        "a:b",
        "a-b",
        "a.b",
        "a b",
        "a_b",
        "a%2Fb",
        "a\\b",
        "../a",
        "a*",
        "a?",
        "🦀",
        "🦞",
        "\u{e9}",
        "e\u{301}",
        "orders ",
        "orders.",
        "orders-",
        &long,
        &format!("{long}y"),
    ];
    let mut asking: Vec<BoxFuture<'static, Step<Option<Held>>>> = Vec::new();
    for (service, name) in names.into_iter().enumerate() {
        let held = Held {
            stream: b.stream_named(name)?,
            actor: b.actor(service, "holder")?,
        };
        asking.push(Box::pin(held.acquired(b.long()?)));
    }
    let answers: Step<Vec<_>> = together(asking).await.into_iter().collect();
    let held: Vec<_> = answers?.into_iter().flatten().collect();
    if held.len() < 2 {
        return Err(Stop::Skipped("the service refuses nearly every name".into()));
    }
    all_seen(&held, "all of them were acquired").await?;
    // Names that are alike stand side by side above, so that one of each pair is released.
    for freed in held.iter().step_by(2) {
        freed.actor.must_release(&freed.stream, Claim::Instance).await?;
    }
    let kept: Vec<_> = held.into_iter().skip(1).step_by(2).collect();
    all_seen(&kept, "those that are like them were released").await
}

/// A stream with an odd name, and who holds it.
#[derive(Clone)]
struct Held {
    stream: StreamName,
    actor: Actor,
}

impl Held {
    /// Acquires it; `None` when the service clearly refuses the name, which is as good as a lock of its own.
    async fn acquired(self, ttl: Ttl) -> Step<Option<Self>> {
        let Held { stream, actor } = &self;
        match actor.service().acquire(actor.acquisition(stream, ttl)).await {
            // That the store is away is no answer to the name.
            Err(error @ (LockError::Unavailable { .. } | LockError::ShutDown)) => {
                fail(format!("acquiring {stream:?} failed: {error}"))
            }
            Err(_) => Ok(None),
            Ok(refused @ Outcome::Refused(_)) => {
                fail(format!("nobody holds {stream:?}, and it was {}", shown(&refused)))
            }
            Ok(Outcome::Granted(_)) => Ok(Some(self)),
            Ok(Outcome::Unknown(_)) => {
                actor.must_acquire(stream, ttl, "a free lock").await?;
                Ok(Some(self))
            }
        }
    }
}

async fn all_seen(held: &[Held], after: &'static str) -> Step {
    let looks = held.iter().cloned().map(|Held { stream, actor }| {
        let look: BoxFuture<'static, Step> = Box::pin(async move {
            let seen = actor.state(&stream).await?.map(|s| s.instance);
            ensure(seen.as_deref() == Some(actor.instance().as_str()), || {
                let holder = actor.instance();
                format!("{holder} holds {stream:?}, and after {after} its state shows {seen:?}")
            })
        });
        look
    });
    together(looks.collect()).await.into_iter().collect()
}

async fn odd_ttls_expire_late_never_early(b: Bench) -> Step {
    let parts = [900, 1500].map(|millis| {
        let b = b.clone();
        let part: BoxFuture<'static, Step> =
            Box::pin(async move { expires_late(&b, Duration::from_millis(millis)).await });
        part
    });
    b.side_by_side(parts.into()).await
}

async fn expires_late(b: &Bench, ttl: Duration) -> Step {
    let ttl = Ttl::new(ttl).map_err(|e| Stop::Failed(e.to_string()))?;
    let (a, other, stream) = b.two()?;
    let sent = a.now();
    let call = a.service().acquire(a.acquisition(&stream, ttl)).await;
    if let Err(LockError::Invalid(_) | LockError::Rejected { .. }) = call {
        // A service may refuse a TTL that it cannot honour, clearly.
        return Ok(());
    }
    if !matches!(&call, Ok(Outcome::Granted(_))) {
        a.must_acquire(&stream, ttl, "a free lock for a short time")
            .await?;
    }
    let request = other.acquisition(&stream, b.long()?);
    other
        .wait_for(b, request, ttl, &format!("that A held for {ttl}"))
        .await?;
    not_early(b, ttl, sent, a.now())
}

async fn enormous_ttls_overflow_nothing(b: Bench) -> Step {
    let ten_years = Ttl::from_secs(10 * 365 * 24 * 3600).map_err(|e| Stop::Failed(e.to_string()))?;
    for ttl in [ten_years, Ttl::MAX] {
        let (a, other, stream) = b.two()?;
        let before = a.now();
        let call = a.service().acquire(a.acquisition(&stream, ttl)).await;
        if let Err(LockError::Invalid(_) | LockError::Rejected { .. }) = call {
            continue;
        }
        let grant = a
            .must_acquire(&stream, ttl, &format!("a free lock for {ttl}"))
            .await?;
        let valid = grant.valid_until.since(before);
        ensure(
            valid > ttl.as_duration() / 2 && valid < ttl.as_duration() * 2,
            || format!("a grant for {ttl} is valid for {valid:?}"),
        )?;
        let now = other.service().clock().wall();
        let shown = other.must_see(&stream).await?.expires_at;
        ensure(
            shown
                .duration_since(now)
                .is_ok_and(|left| left > ttl.as_duration() / 2),
            || format!("a lock for {ttl} shows an expiry of {shown:?}, and it is {now:?} now"),
        )?;
        b.wait(b.step(b.short()?)).await;
        other
            .must_not_acquire(&stream, ttl, &format!("a lock that A holds for {ttl}"))
            .await?;
        a.must_extend(
            a.extension(&stream, b.long()?),
            "its own lock from an enormous TTL to a shorter one",
        )
        .await?;
    }
    Ok(())
}
