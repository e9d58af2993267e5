//! stub
/// stub
#[derive(Debug)]
pub struct InMemoryLockService;
