//! A stream and its work, as a program registers them.

use std::{fmt, future::Future, sync::Arc};

use super::{
    driver::Work,
    leadership::Leadership,
    status::{AfterWork, DeploymentMode, IfStuck},
};
use crate::lock::StreamName;

/// A stream and its work.
#[derive(Clone)]
#[must_use]
pub struct StreamSpec {
    pub(super) stream: StreamName,
    pub(super) mode: DeploymentMode,
    pub(super) after_work: AfterWork,
    pub(super) if_stuck: IfStuck,
    pub(super) work: Work,
}

impl StreamSpec {
    /// A stream, on how many instances it runs, and what to run. The function is called anew for each leadership.
    pub fn new<F, W>(stream: StreamName, mode: DeploymentMode, work: W) -> Self
    where
        W: Fn(Leadership) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            stream,
            mode,
            after_work: AfterWork::default(),
            if_stuck: IfStuck::default(),
            work: Arc::new(move |leadership| Box::pin(work(leadership))),
        }
    }

    /// What happens when the work returns or panics by itself. Default: [`AfterWork::ContendAgain`].
    pub fn after_work(mut self, after_work: AfterWork) -> Self {
        self.after_work = after_work;
        self
    }

    /// What happens when the work cannot be dropped. Default: [`IfStuck::Wait`].
    pub fn if_stuck(mut self, if_stuck: IfStuck) -> Self {
        self.if_stuck = if_stuck;
        self
    }
}

impl fmt::Debug for StreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSpec")
            .field("stream", &self.stream)
            .field("mode", &self.mode)
            .field("after_work", &self.after_work)
            .field("if_stuck", &self.if_stuck)
            .finish_non_exhaustive()
    }
}
