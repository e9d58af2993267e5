//! What came of a run, in a form that a person can act on.

use std::{fmt, time::Duration};

use super::case::Case;

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The service honours the rule.
    Passed,
    /// It does not; what happened.
    Failed(String),
    /// The rule was not tested; why. Not a pass.
    Skipped(String),
}

/// A case and how it ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct CaseResult {
    /// The case.
    pub case: &'static Case,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took, on the machine's clock.
    pub took: Duration,
}

/// The results of a run, in the order of [`cases`](super::cases). `Display` is a table, failures first.
#[derive(Debug)]
#[must_use = "a report that nobody asserts on tests nothing"]
pub struct Report {
    results: Vec<CaseResult>,
}

impl Report {
    pub(super) fn new(results: Vec<CaseResult>) -> Self {
        Self { results }
    }

    /// All results.
    pub fn results(&self) -> &[CaseResult] {
        &self.results
    }

    /// The cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CaseResult> {
        self.results
            .iter()
            .filter(|r| matches!(r.verdict, Verdict::Failed(_)))
    }

    /// The cases that were skipped.
    pub fn skipped(&self) -> impl Iterator<Item = &CaseResult> {
        self.results
            .iter()
            .filter(|r| matches!(r.verdict, Verdict::Skipped(_)))
    }

    /// The cases that passed.
    pub fn passed(&self) -> impl Iterator<Item = &CaseResult> {
        self.results
            .iter()
            .filter(|r| matches!(r.verdict, Verdict::Passed))
    }

    /// Panics with the whole table when a case failed, or when none passed: a run that skipped everything shows nothing.
    ///
    /// # Panics
    /// See above.
    pub fn assert_passed(&self) -> &Self {
        assert!(
            self.failed().next().is_none() && self.passed().next().is_some(),
            "the lock service breaks the lock contract\n{self}"
        );
        self
    }

    /// Panics with the whole table when a case was skipped.
    ///
    /// # Panics
    /// See above.
    pub fn assert_nothing_skipped(&self) -> &Self {
        assert!(
            self.skipped().next().is_none(),
            "cases of the lock contract were skipped\n{self}"
        );
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed().count(), self.skipped().count());
        let passed = self.results.len() - failed - skipped;
        writeln!(
            f,
            "lock contract: {failed} failed, {skipped} skipped, {passed} passed"
        )?;
        for result in self.failed() {
            if let Verdict::Failed(why) = &result.verdict {
                let case = result.case;
                writeln!(f, "  FAILED   {} ({})", case.name, case.origin)?;
                writeln!(f, "           the rule: {}", case.rule)?;
                writeln!(f, "           but here: {why}")?;
            }
        }
        for result in self.skipped() {
            if let Verdict::Skipped(why) = &result.verdict {
                writeln!(f, "  skipped  {}: {why}", result.case.name)?;
            }
        }
        for result in self.passed() {
            writeln!(f, "  passed   {} ({:.1?})", result.case.name, result.took)?;
        }
        Ok(())
    }
}
