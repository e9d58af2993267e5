//! Running a future to its end from code that is not async, whatever runtime the caller may be in.

use std::future::Future;
use std::io;

/// Runs it on a thread and a runtime of its own.
pub(crate) fn run<T: Send>(future: impl Future<Output = T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(future))
        })?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
