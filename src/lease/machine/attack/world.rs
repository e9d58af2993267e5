//! All there is in a run, and its turns: who does what next is drawn from the seed.

use std::collections::HashMap;

use super::{meddler::Meddler, network::Flight, process::Process, server::Server, *};

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) meddler: Meddler,
    pub(super) server: Server,
    pub(super) processes: Vec<Process>,
    pub(super) flights: Vec<Flight>,
    pub(super) ids: u64,
    /// Tokens of the terms that were granted.
    pub(super) granted: HashMap<Term, i64>,
    /// Until when (true time) the grants from before something that no lock survives may overlap others.
    pub(super) excused: u64,
    pub(super) grants: u64,
    pub(super) takeovers: u64,
}

impl World {
    pub(super) fn new(seed: u64, meddler: Meddler) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let processes = (0..3).map(|index| Process::new(&mut rng, index)).collect();
        Self {
            rng,
            meddler,
            server: Server {
                version: 10,
                ..Server::default()
            },
            processes,
            flights: Vec::new(),
            ids: 0,
            granted: HashMap::new(),
            excused: 0,
            grants: 0,
            takeovers: 0,
        }
    }

    fn pass(&mut self) {
        let micros = match self.rng.below(20) {
            0..8 => self.rng.below(5_000),
            8..18 => self.rng.below(200_000),
            18 => self.rng.below(1_500_000),
            _ => self.rng.below(if self.rng.0.is_multiple_of(8) {
                20_000_000
            } else {
                500_000
            }),
        };
        self.server.micros += micros;
    }

    pub(super) fn turn(&mut self) {
        self.pass();
        match self.rng.below(100) {
            0..60 => self.network(),
            60..75 => self.clocks(),
            75..88 => self.ask(),
            88..95 => self.news(),
            95 => self.forget(),
            96 | 97 => self.pounce(),
            _ => self.meddle(),
        }
        self.check();
    }
}

/// xorshift64*.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
