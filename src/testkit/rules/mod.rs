//! The rules, a file per theme. Each case makes its own streams and instances, so that all can run at once.

mod contract_a;
mod contract_b;
mod identity;
mod input;
mod ownership;
mod races;
mod time;
mod tokens;

use super::case::Case;

pub(super) static ALL: &[&[Case]] = &[
    contract_a::CASES,
    contract_b::CASES,
    time::CASES,
    races::CASES,
    tokens::CASES,
    ownership::CASES,
    identity::CASES,
    input::CASES,
];
