//! Whether two led at once, by what each says of itself.

use crate::elector::{Event, What};

/// For how long somebody led, by his own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Who.
    pub who: String,
    /// From when, as [`now`](crate::now).
    pub from: u64,
    /// The last moment of which it is known that he led.
    pub to: u64,
}

/// Two spans that have a moment in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// Who began first.
    pub first: Span,
    /// Who began while the first still led.
    pub second: Span,
    /// How long both led, in nanoseconds.
    pub nanos: u64,
}

impl Span {
    /// The spans that an elector's lines tell of. One that it did not tell the end of lasts until `gone`, when the
    /// process was stopped or killed; until its last line if that is not given.
    pub fn of(events: &[Event], lease: &str, gone: Option<u64>) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        let mut open = false;
        for event in events.iter().filter(|event| event.lease == lease) {
            match (event.event, spans.last_mut()) {
                (What::Elected, _) => {
                    open = true;
                    spans.push(Self {
                        who: event.id.clone(),
                        from: event.at,
                        to: event.at,
                    });
                }
                (What::Effect | What::Renewed | What::Ended, Some(span)) if open => {
                    span.to = event.at;
                    open = event.event != What::Ended;
                }
                _ => {}
            }
        }
        if let (true, Some(gone), Some(span)) = (open, gone, spans.last_mut()) {
            span.to = span.to.max(gone);
        }
        spans
    }
}

/// All pairs that led at once, whoever they are: one's own next term must not begin within the last one either.
pub fn overlaps(spans: &[Span]) -> Vec<Overlap> {
    let mut sorted: Vec<_> = spans.iter().collect();
    sorted.sort_by_key(|span| span.from);
    let mut found = Vec::new();
    for (n, first) in sorted.iter().enumerate() {
        for second in &sorted[n + 1..] {
            if second.from < first.to {
                found.push(Overlap {
                    first: (*first).clone(),
                    second: (*second).clone(),
                    nanos: first.to.min(second.to) - second.from,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(who: &str, from: u64, to: u64) -> Span {
        Span {
            who: who.to_owned(),
            from,
            to,
        }
    }

    fn event(at: u64, event: What) -> Event {
        Event {
            at,
            event,
            lease: "l".to_owned(),
            id: "a".to_owned(),
            leader: String::new(),
        }
    }

    #[test]
    fn an_overlap_is_found_wherever_it_is_hidden() {
        let apart = [span("b", 10, 20), span("a", 0, 10), span("a", 20, 30)];
        assert_eq!(overlaps(&apart), []);
        let inside = [span("a", 0, 100), span("b", 10, 20), span("c", 30, 130)];
        let found: Vec<_> = overlaps(&inside)
            .into_iter()
            .map(|o| (o.first.who, o.second.who, o.nanos))
            .collect();
        let pair = |a: &str, b: &str, nanos| (a.to_owned(), b.to_owned(), nanos);
        assert_eq!(found, [pair("a", "b", 10), pair("a", "c", 70)]);
        // A term within one's own last one is two guards as well.
        assert_eq!(overlaps(&[span("a", 0, 10), span("a", 5, 6)]).len(), 1);
    }

    #[test]
    fn a_span_lasts_until_its_end_was_told_or_its_process_was_stopped() {
        let lines = [
            event(1, What::Elected),
            event(5, What::Ended),
            event(6, What::Stopped),
            event(7, What::Elected),
            event(9, What::Effect),
        ];
        assert_eq!(Span::of(&lines, "l", None), [span("a", 1, 5), span("a", 7, 9)]);
        assert_eq!(Span::of(&lines, "l", Some(20))[1], span("a", 7, 20));
        assert_eq!(Span::of(&lines[..2], "l", Some(20)), [span("a", 1, 5)]);
        assert_eq!(Span::of(&lines, "other", Some(20)), []);
    }
}
