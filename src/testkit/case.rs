//! What a case is: a name that stays, the rule it checks, where the rule comes from, and how it ends.

use std::{fmt, sync::LazyLock};

use crate::lock::BoxFuture;

use super::{bench::Bench, rules};

/// One rule of the contract, as an executable case.
pub struct Case {
    /// Its name, a sentence in `snake_case`. Stays over releases.
    pub name: &'static str,
    /// The rule in words.
    pub rule: &'static str,
    /// Where the rule comes from.
    pub origin: Origin,
    pub(super) run: fn(Bench) -> BoxFuture<'static, Step>,
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Contract A, FlowWarden's `LockService`.
    ContractA,
    /// Contract B, Flamingock's `CommunityLockService`.
    ContractB,
    /// This library: what neither contract tests, and two leaders were made by.
    Leasewarden,
}

/// Every case, in the order of the report.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    static ALL: LazyLock<Vec<&'static Case>> =
        LazyLock::new(|| rules::ALL.iter().copied().flatten().collect());
    ALL.iter().copied()
}

/// Why a case ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The service broke the rule.
    Failed(String),
    /// The rule does not apply to the service, or cannot be tested on it.
    Skipped(String),
}

/// A step of a case.
pub(super) type Step<T = ()> = Result<T, Stop>;

/// Ends the case unless it holds.
pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Step {
    if holds {
        Ok(())
    } else {
        Err(Stop::Failed(otherwise()))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::ContractA => "contract A",
            Origin::ContractB => "contract B",
            Origin::Leasewarden => "leasewarden",
        })
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.origin, self.rule)
    }
}

/// A line of a table of cases: the case has the name of its function.
macro_rules! case {
    ($origin:ident, $function:ident, $rule:literal) => {
        $crate::testkit::Case {
            name: stringify!($function),
            rule: $rule,
            origin: $crate::testkit::Origin::$origin,
            run: |bench| Box::pin($function(bench)),
        }
    };
}
pub(super) use case;
