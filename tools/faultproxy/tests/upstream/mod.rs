//! A server of a few lines on a thread of its own: notes what reaches it, answers 200, streams one watch.
// Each test program uses a part of it.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Ample for a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The server's clock stands still.
pub const DATE: &str = "Tue, 01 Dec 2026 03:00:00 GMT";

#[derive(Default)]
struct State {
    requests: Vec<(Instant, String)>,
    authorization: Vec<String>,
    events: VecDeque<Bytes>,
    watches: usize,
    waker: Option<Waker>,
}

pub struct Upstream {
    state: Arc<Mutex<State>>,
    url: String,
    // Dropped, it ends the thread.
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Upstream {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let for_thread = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let serve = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        let state = Arc::clone(&for_thread);
                        let service = service_fn(move |request| answer(request, Arc::clone(&state)));
                        let io = TokioIo::new(stream);
                        tokio::spawn(
                            hyper::server::conn::http1::Builder::new().serve_connection(io, service),
                        );
                    }
                };
                tokio::select! {
                    () = serve => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            state,
            url,
            _end: end,
        }
    }

    pub fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(self.url.parse().unwrap());
        config.auth_info.token = Some("of-the-base".to_owned().into());
        config
    }

    pub fn seen(&self) -> Vec<String> {
        self.state
            .lock()
            .unwrap()
            .requests
            .iter()
            .map(|(_, request)| request.clone())
            .collect()
    }

    pub fn arrivals(&self) -> Vec<Instant> {
        self.state
            .lock()
            .unwrap()
            .requests
            .iter()
            .map(|(at, _)| *at)
            .collect()
    }

    pub fn authorization(&self) -> Vec<String> {
        self.state.lock().unwrap().authorization.clone()
    }

    /// What the next look of the watch finds.
    pub fn event(&self, event: &'static str) {
        let mut state = self.state.lock().unwrap();
        state.events.push_back(Bytes::from_static(event.as_bytes()));
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub fn watches(&self) -> usize {
        self.state.lock().unwrap().watches
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
    {
        let mut state = state.lock().unwrap();
        state
            .requests
            .push((Instant::now(), format!("{} {} {body}", parts.method, parts.uri)));
        state.authorization.extend(
            parts
                .headers
                .get("authorization")
                .map(|value| value.to_str().unwrap().to_owned()),
        );
    }
    let body = match parts.uri.path() {
        "/version" => {
            let version = serde_json::json!({
                "major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            });
            Full::from(version.to_string()).boxed_unsync()
        }
        _ if parts.uri.query() == Some("watch=true") => {
            state.lock().unwrap().watches += 1;
            Watch(state).boxed_unsync()
        }
        _ => Full::from("{}").boxed_unsync(),
    };
    Ok(Response::builder().header("date", DATE).body(body).unwrap())
}

struct Watch(Arc<Mutex<State>>);

impl Body for Watch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = self.0.lock().unwrap();
        state.waker = Some(cx.waker().clone());
        match state.events.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.lock().unwrap().watches -= 1;
    }
}

pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
