//! Random schedules from fixed seeds: what must hold after every step, whatever happens in whatever order.

use super::*;

struct Lots(u64);

impl Lots {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// What the outside knows of one leadership.
#[derive(Default)]
struct World {
    now: Duration,
    acquiring: Vec<CallId>,
    extending: Vec<(CallId, Duration)>,
    releasing: Vec<CallId>,
    /// The term, whether its work lives, its guards live, its guard is over, and its deadline.
    work: Option<(TermNo, bool, bool, bool, Moment)>,
    last_term: u64,
    starts: u32,
    shut: bool,
}

impl World {
    fn moment(&self) -> Moment {
        START + self.now
    }

    fn check(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Acquire(id, term) => {
                    assert!(!self.shut, "asks for a lock after the shutdown");
                    assert!(self.work.is_none(), "contends while old work lives");
                    assert!(term.0 >= self.last_term, "an old term");
                    self.acquiring.push(id);
                }
                Output::Extend(id, term) => {
                    let Some((of, _, _, over, _)) = self.work else {
                        panic!("renews without work")
                    };
                    assert!(of == term && !over, "renews what is over");
                    self.extending.push((id, self.now));
                }
                Output::Release(id, _) => {
                    assert!(self.work.is_none(), "releases while the work lives");
                    self.releasing.push(id);
                }
                Output::Forget(id) => {
                    self.acquiring.retain(|call| *call != id);
                    self.extending.retain(|(call, _)| *call != id);
                    self.releasing.retain(|call| *call != id);
                }
                Output::StartWork {
                    term, valid_until, ..
                } => {
                    assert!(!self.shut, "starts after the shutdown");
                    assert!(self.work.is_none(), "two at once");
                    assert!(term.0 > self.last_term, "a term comes back to life");
                    assert!(valid_until > self.moment());
                    self.last_term = term.0;
                    self.starts += 1;
                    self.work = Some((term, true, true, false, valid_until));
                }
                Output::Deadline(until) => {
                    let Some((_, _, _, over, deadline)) = &mut self.work else {
                        panic!("no guard")
                    };
                    assert!(!*over, "a guard that is over is prolonged");
                    assert!(START + self.now < *deadline, "prolonged after its deadline");
                    *deadline = until;
                }
                Output::CutOff(_) => {
                    if let Some((_, _, _, over, _)) = &mut self.work {
                        *over = true;
                    }
                }
                Output::AskStop(_) | Output::TellLost(_) => {}
                Output::Stuck => assert!(self.work.is_some_and(|work| work.3), "stuck without work"),
            }
        }
    }

    fn input(&mut self, lots: &mut Lots) -> Input {
        match lots.below(12) {
            0 if lots.below(3) == 0 => Input::Wish(Wish::Stop),
            0 | 1 => Input::Wish(Wish::Start),
            2 | 3 if !self.acquiring.is_empty() => {
                let id = self.acquiring.remove(0);
                Input::Acquired(id, answer(lots, self.now))
            }
            4 | 5 if !self.extending.is_empty() => {
                let n = lots.below(self.extending.len() as u64);
                let (id, sent) = self.extending.remove(usize::try_from(n).unwrap());
                Input::Extended(id, answer(lots, sent))
            }
            6 | 7 if !self.releasing.is_empty() => {
                let freed = match lots.below(2) {
                    0 => Freed::Done,
                    _ => Freed::Unknown("cut".into()),
                };
                Input::Released(self.releasing.remove(0), freed)
            }
            8 => self.end_of(lots),
            9 => Input::News(match lots.below(8) {
                0 => News::Lost(TermNo(self.last_term), LossReason::Deleted),
                1 => News::Shortened(TermNo(self.last_term), self.moment() + secs(1.0)),
                2..4 => News::Free,
                _ => News::Held {
                    holder: "other".into(),
                    free_from: Some(self.moment() + secs(3.0)),
                },
            }),
            _ => Input::Tick,
        }
    }

    fn end_of(&mut self, lots: &mut Lots) -> Input {
        let Some((term, lives, guards, _, _)) = &mut self.work else {
            return Input::WorkEnded(TermNo(lots.below(9)), End::Returned);
        };
        let term = *term;
        let input = if *lives && lots.below(2) == 0 {
            *lives = false;
            Input::WorkEnded(term, End::Returned)
        } else if *guards {
            *guards = false;
            Input::GuardsGone(term)
        } else {
            *lives = false;
            Input::WorkEnded(term, End::Returned)
        };
        if !*lives && !*guards {
            self.work = None;
        }
        input
    }

    fn step(&mut self, m: &mut Machine, input: Input) {
        let outputs = m.step(self.moment(), input);
        self.check(outputs);
        if let Some((_, _, _, over, deadline)) = self.work {
            assert!(over || self.moment() < deadline, "acts beyond its deadline");
        }
    }
}

fn answer(lots: &mut Lots, sent: Duration) -> Answer {
    match lots.below(8) {
        0 => held(),
        1 => Answer::NotHeld,
        2 => Answer::Over,
        3 => unknown(),
        4 => Answer::Failed("500".into()),
        _ => granted(sent.as_secs_f64()),
    }
}

#[test]
fn no_schedule_releases_under_live_work_revives_a_term_or_acts_beyond_a_deadline() {
    let mut starts = 0;
    for seed in 0..300 {
        let mut lots = Lots(seed);
        let mut m = Machine::new(
            ElectionSettings::default(),
            DeploymentMode::SingleLeader,
            AfterWork::ContendAgain,
            seed,
        );
        let mut world = World::default();
        for _ in 0..600 {
            let next = m.wake().since(world.moment()).min(secs(30.0));
            world.now += match lots.below(4) {
                0 => Duration::ZERO,
                1 => next / 2,
                2 => next,
                // A machine that was suspended.
                _ if lots.below(20) == 0 => secs(40.0),
                _ => Duration::from_millis(lots.below(400)),
            };
            let input = world.input(&mut lots);
            world.step(&mut m, input);
        }
        // After a shutdown everything comes to an end, and nothing begins.
        world.step(&mut m, Input::Wish(Wish::ShutDown(Moment::NEVER)));
        world.shut = true;
        for _ in 0..600 {
            if m.is_finished() {
                break;
            }
            world.now += m.wake().since(world.moment()).min(secs(1.0));
            let input = match lots.below(3) {
                0 if world.work.is_some() => world.end_of(&mut lots),
                _ => world.input(&mut lots),
            };
            world.step(&mut m, input);
        }
        assert!(m.is_finished(), "seed {seed}: {m:?}");
        starts += world.starts;
    }
    assert!(
        starts > 1000,
        "only {starts} leaderships: the schedules show little"
    );
}
