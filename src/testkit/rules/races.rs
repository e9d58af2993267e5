//! Races: whatever happens at once, one wins; and a caller that goes away in the middle leaves nothing behind.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::sync::Barrier;

use crate::{
    lock::{BoxFuture, Outcome, StreamName},
    testkit::{
        actor::Actor,
        bench::{Bench, together},
        case::{Case, Step, case, ensure},
    },
};

pub(super) const CASES: &[Case] = &[
    case!(
        Leasewarden,
        racing_acquirers_have_one_winner,
        "of many who acquire a free lock at once, exactly one is granted it"
    ),
    case!(
        Leasewarden,
        racing_takeovers_have_one_winner,
        "of many who wait for a lock to expire, exactly one is granted it"
    ),
    case!(
        Leasewarden,
        a_renewal_and_a_takeover_have_one_winner,
        "of a holder that renews and another that takes over at the same time, at most one is granted the lock"
    ),
    case!(
        Leasewarden,
        a_dropped_acquisition_strands_nothing,
        "an acquisition whose caller went away blocks nobody for longer than its TTL"
    ),
];

const RACERS: usize = 16;

fn racers(b: &Bench) -> Step<Vec<Actor>> {
    (0..RACERS).map(|n| b.actor(n, &format!("racer{n}"))).collect()
}

/// Lets all of them acquire at once; gives who was granted it.
async fn round(b: &Bench, racers: &[Actor], stream: &StreamName) -> Step<Vec<Actor>> {
    let ttl = b.long()?;
    let start = Arc::new(Barrier::new(racers.len()));
    let asks = racers.iter().map(|racer| {
        let (racer, stream, start) = (racer.clone(), stream.clone(), Arc::clone(&start));
        let ask: BoxFuture<'static, Step<Option<Actor>>> = Box::pin(async move {
            start.wait().await;
            let granted = racer.ask(racer.acquisition(&stream, ttl)).await?.is_granted();
            Ok(granted.then_some(racer))
        });
        ask
    });
    let answers: Step<Vec<_>> = together(asks.collect()).await.into_iter().collect();
    Ok(answers?.into_iter().flatten().collect())
}

fn one_winner(winners: &[Actor], seen: &str) -> Step {
    let names: Vec<_> = winners.iter().map(|w| w.instance().as_str()).collect();
    ensure(names == [seen], || {
        format!("the lock was granted to {names:?}, and its state shows {seen}")
    })
}

async fn racing_acquirers_have_one_winner(b: Bench) -> Step {
    let racers = racers(&b)?;
    for _ in 0..3 {
        let stream = b.stream()?;
        let winners = round(&b, &racers, &stream).await?;
        ensure(!winners.is_empty(), || {
            "a free lock was asked for by many at once, and nobody was granted it".into()
        })?;
        let seen = racers[0].must_see(&stream).await?;
        one_winner(&winners, &seen.instance)?;
    }
    Ok(())
}

async fn racing_takeovers_have_one_winner(b: Bench) -> Step {
    let racers = racers(&b)?;
    let holder = b.actor(0, "holder")?;
    let stream = b.stream()?;
    let ttl = b.short()?;
    holder.must_acquire(&stream, ttl, "a free lock").await?;
    let mark = b.mark();
    let mut winners = Vec::new();
    while winners.is_empty() {
        ensure(b.since(mark) <= b.patience(ttl), || {
            let waited = b.since(mark);
            format!("many asked for {waited:.1?} for a lock with a TTL of {ttl}, and nobody was granted it")
        })?;
        b.wait(b.step(ttl)).await;
        winners = round(&b, &racers, &stream).await?;
    }
    let seen = holder.must_see(&stream).await?;
    one_winner(&winners, &seen.instance)?;
    // Once more: a loser that was late must not come through after the winner.
    let later = round(&b, &racers, &stream).await?;
    one_winner(&later, &seen.instance)
}

async fn a_renewal_and_a_takeover_have_one_winner(b: Bench) -> Step {
    // In percent of the TTL after the holder's write: while its grant is valid, when it ends, when the record expires, after.
    let parts = [50, 89, 91, 99, 100, 102, 110].map(|percent| {
        let b = b.clone();
        let part: BoxFuture<'static, Step> = Box::pin(async move {
            renew_against_takeover(&b, percent, true).await?;
            renew_against_takeover(&b, percent, false).await
        });
        part
    });
    b.side_by_side(parts.into()).await
}

async fn renew_against_takeover(b: &Bench, percent: u32, holder_first: bool) -> Step {
    let (a, other, stream) = b.two()?;
    let (ttl, long) = (b.short()?, b.long()?);
    let sent = b.mark();
    a.must_acquire(&stream, ttl, "a free lock").await?;
    // B watches from the start, so that it may take over as early as it ever can.
    let early = other.ask(other.acquisition(&stream, long)).await?;
    let mut taken = early.is_granted();
    b.wait_until(sent, ttl.as_duration() * percent / 100).await;

    let (renew, take) = (a.extension(&stream, long), other.acquisition(&stream, long));
    let (renewing, taking) = (a.clone(), other.clone());
    let renewing: BoxFuture<'static, Step<Outcome>> = Box::pin(async move { renewing.extend(renew).await });
    let taking: BoxFuture<'static, Step<Outcome>> = Box::pin(async move { taking.ask(take).await });
    // Tasks that never wait run in the order they were started, so each is first once.
    let both = if holder_first {
        vec![renewing, taking]
    } else {
        vec![taking, renewing]
    };
    let outcomes: Step<Vec<_>> = together(both).await.into_iter().collect();
    let mut granted: Vec<_> = outcomes?.iter().map(Outcome::is_granted).collect();
    if !holder_first {
        granted.reverse();
    }
    let renewed = granted[0];
    taken |= granted[1];

    let when = format!("at {percent} % of the TTL");
    ensure(!(renewed && taken), || {
        format!("{when} A's renewal and B's takeover were both granted")
    })?;
    if !renewed && !taken {
        // A's renewal may have been written, and proven too late to grant anything: then nobody holds what the record
        // says A holds, for the TTL that A asked for. A gives it up, so that B need not wait for that.
        a.give_up(&stream).await?;
        other
            .wait_for(b, other.acquisition(&stream, long), ttl, "that A could not renew")
            .await?;
    }
    if renewed {
        other
            .must_not_acquire(&stream, long, &format!("a lock that A had renewed {when}"))
            .await?;
    } else {
        let renewal = a.extension(&stream, long);
        a.must_not_extend(renewal, &format!("a lock that B had taken over {when}"))
            .await?;
    }
    let (holder, seen) = (if renewed { &a } else { &other }, a.must_see(&stream).await?);
    ensure(seen.instance == holder.instance().as_str(), || {
        format!(
            "{when} {} won, and the state shows {}",
            holder.instance(),
            seen.instance
        )
    })
}

async fn a_dropped_acquisition_strands_nothing(b: Bench) -> Step {
    // After so many polls, but no later than so many milliseconds: at once, in the middle, and perhaps after it is done.
    let parts = [
        (1, 0),
        (2, 5),
        (3, 5),
        (u32::MAX, 1),
        (u32::MAX, 5),
        (u32::MAX, 25),
    ]
    .map(|(polls, millis)| {
        let b = b.clone();
        let part: BoxFuture<'static, Step> =
            Box::pin(async move { drop_after(&b, polls, Duration::from_millis(millis)).await });
        part
    });
    b.side_by_side(parts.into()).await
}

async fn drop_after(b: &Bench, polls: u32, limit: Duration) -> Step {
    let (a, other, stream) = b.two()?;
    let ttl = b.short()?;
    {
        let mut asked = a.service().acquire(a.acquisition(&stream, ttl));
        let mut polled = 0;
        let some_of_it = poll_fn(|cx| {
            polled += 1;
            match asked.as_mut().poll(cx) {
                Poll::Pending if polled < polls => Poll::Pending,
                // Whether it was answered in that time does not matter.
                _ => Poll::Ready(()),
            }
        });
        let _ = tokio::time::timeout(limit, some_of_it).await;
    }
    let why = "that A asked for in a call that was dropped";
    let request = other.acquisition(&stream, b.long()?);
    other.wait_for(b, request, ttl, why).await?;
    a.must_not_acquire(
        &stream,
        b.long()?,
        "a lock that B holds, after an earlier call that was dropped",
    )
    .await?;
    Ok(())
}
