//! How a store refuses a deposed leader, four ways. `docs/fencing.md` shows this code and says what each protects; a
//! test compares the page with it.

pub mod document;
pub mod http;
pub mod object;
pub mod sql;

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
