//! What happens on a connection: requests come in, meet their rules, go to the server, and replies go back. An error
//! of the handler is how a connection is cut: hyper closes it without an answer.

use std::convert::identity;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::record::Record;
use crate::rule::{Fault, Plan, Rules, State};
use crate::trickle::Trickle;
use crate::wire::{Line, Wire};

type Body = UnsyncBoxBody<Bytes, kube::Error>;

/// Whether anything gets through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) up: bool,
    /// How often everything that was open has been cut.
    pub(crate) cuts: u64,
}

/// What the proxy's handle and its connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rules: Rules,
    pub(crate) record: Record,
    pub(crate) link: watch::Sender<Link>,
}

/// The client gets no answer: its connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
struct Cut;

/// Serves whoever connects, until dropped.
pub(crate) async fn listen(listener: TcpListener, client: Client, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let link = *shared.link.borrow();
                if link.up {
                    tokio::spawn(connection(stream, client.clone(), Arc::clone(&shared), link.cuts));
                }
            }
            // Out of file descriptors, say: they come back as connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn connection(stream: TcpStream, client: Client, shared: Arc<Shared>, cuts: u64) {
    // An event of a watch must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let mut link = shared.link.subscribe();
    let (wire, held) = Wire::new(stream);
    let service = service_fn(|request| handle(request, client.clone(), Arc::clone(&shared), held.clone()));
    // The Date header is the server's; without one there is to be none.
    let served = http1::Builder::new()
        .auto_date_header(false)
        .serve_connection(TokioIo::new(wire), service);
    tokio::select! {
        _ = served => {}
        _ = link.wait_for(|link| link.cuts != cuts) => {}
    }
}

async fn handle(
    request: Request<Incoming>,
    client: Client,
    shared: Arc<Shared>,
    line: Line,
) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    // Wholly received first: from here on it needs no client any more.
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    // A task of its own, since hyper drops this future when the client goes, and what is under way arrives all the same.
    let (response, manner) = tokio::spawn(exchange(parts, body, client, shared))
        .await
        .map_err(|_| Cut)
        .and_then(identity)?;
    // Also back to its usual pace after a slow reply.
    line.pace(None);
    match manner {
        Manner::Usual => {}
        Manner::Slow(pace) => line.pace(Some(pace)),
        Manner::Deaf(state) => line.turn_deaf(state),
        Manner::HalfClosed => {
            line.end_sending().await;
            // Until the client ends its half too, which drops this future.
            pending::<()>().await;
        }
    }
    Ok(response)
}

/// How a reply goes to the client.
enum Manner {
    Usual,
    Slow(Duration),
    /// Not at all, and no other after it.
    HalfClosed,
    /// The last one to a request on its connection.
    Deaf(Arc<State>),
}

async fn exchange(
    mut parts: Parts,
    body: Bytes,
    client: Client,
    shared: Arc<Shared>,
) -> Result<(Response<Body>, Manner), Cut> {
    let entry = shared.record.add(&parts);
    let Plan { main, dates } = shared.rules.plan(&parts, &body);
    let before = main.as_ref().map(|state| (state, &state.fault));
    let mut response = match before {
        Some((state, Fault::Respond(canned))) => {
            state.fire();
            let mut response = Response::new(
                Full::new(canned.body.clone())
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            );
            *response.status_mut() = canned.status;
            *response.headers_mut() = canned.headers.clone();
            response
        }
        Some((state, Fault::Cut)) => {
            state.fire();
            return Err(Cut);
        }
        other => {
            match other {
                Some((state, Fault::Delay(delay))) => {
                    state.fire();
                    tokio::time::sleep(*delay).await;
                }
                Some((state, Fault::Hold)) => {
                    state.fire();
                    state.released().await;
                }
                Some((state, Fault::ShortWatch(seconds))) => {
                    state.fire();
                    parts.uri = with_time_limit(&parts.uri, *seconds);
                }
                _ => {}
            }
            // A server that cannot be reached looks to the client as it would without us: no answer.
            forward(parts, body, &client).await.map_err(|_| Cut)?
        }
    };
    entry.answered(response.status());
    let mut manner = Manner::Usual;
    if let Some(state) = &main {
        match &state.fault {
            Fault::DropReply => {
                state.fire();
                return Err(Cut);
            }
            Fault::DelayReply(delay) => {
                state.fire();
                tokio::time::sleep(*delay).await;
            }
            Fault::HoldReply => {
                state.fire();
                state.released().await;
            }
            Fault::SlowReply(pace) => {
                state.fire();
                manner = Manner::Slow(*pace);
            }
            Fault::SlowBody(pace) => {
                state.fire();
                let pace = *pace;
                response = response.map(|body| Trickle::new(body, pace).boxed_unsync());
            }
            Fault::HalfClose => {
                state.fire();
                manner = Manner::HalfClosed;
            }
            Fault::TurnDeaf => manner = Manner::Deaf(Arc::clone(state)),
            _ => {}
        }
    }
    for state in dates {
        state.fire();
        set_date(response.headers_mut(), &state.fault);
    }
    Ok((response, manner))
}

/// The same request of a watch, to be ended by the server after so long.
fn with_time_limit(uri: &Uri, seconds: u32) -> Uri {
    let kept = uri.query().unwrap_or_default().split('&');
    let kept = kept.filter(|part| !part.is_empty() && !part.starts_with("timeoutSeconds="));
    let query: String = kept.flat_map(|part| [part, "&"]).collect();
    let limited = format!("{}?{query}timeoutSeconds={seconds}", uri.path());
    // Of parts of a URI, and digits: that parses, and the other branch is never taken.
    limited.parse().unwrap_or_else(|_| uri.clone())
}

async fn forward(mut parts: Parts, body: Bytes, client: &Client) -> Result<Response<Body>, kube::Error> {
    remove_hop_by_hop(&mut parts.headers);
    // Our own address; the server's is set on the way.
    parts.headers.remove(header::HOST);
    parts.version = http::Version::HTTP_11;
    let mut response = client
        .send(Request::from_parts(parts, body.into()))
        .await?
        .map(http_body_util::BodyExt::boxed_unsync);
    remove_hop_by_hop(response.headers_mut());
    Ok(response)
}

/// What is about one connection and not about the request.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        HeaderName::from_static("keep-alive"),
    ] {
        headers.remove(name);
    }
}

fn set_date(headers: &mut HeaderMap, fault: &Fault) {
    let date = match fault {
        Fault::Date(date) => Some(*date),
        Fault::ShiftDate(seconds) => {
            let real = headers
                .get(header::DATE)
                .and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
            let by = Duration::from_secs(seconds.unsigned_abs());
            let from = real.unwrap_or_else(SystemTime::now);
            if *seconds < 0 {
                from.checked_sub(by)
            } else {
                from.checked_add(by)
            }
        }
        _ => None,
    };
    match date.and_then(|date| HeaderValue::from_str(&httpdate::fmt_http_date(date)).ok()) {
        Some(value) => drop(headers.insert(header::DATE, value)),
        None => drop(headers.remove(header::DATE)),
    }
}
