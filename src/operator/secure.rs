//! Metrics for those alone whom the API server permits to read them: TLS, `TokenReview`, `SubjectAccessReview`, as other
//! controllers do it, so that the same roles serve for all.
//!
//! Verdicts are kept for a short time: Prometheus asks every few seconds. Tokens are not kept, only their hashes.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
    serve::Listener,
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    },
    server::TlsStream,
};

use super::{metrics::Metrics, observe::Observer};

const HANDSHAKE: Duration = Duration::from_secs(10);
const REVIEW: Duration = Duration::from_secs(5);
/// How long a yes holds, and a no.
const YES: Duration = Duration::from_secs(60);
const NO: Duration = Duration::from_secs(10);
/// How many verdicts are kept.
const VERDICTS: usize = 1024;
/// How many reviews are asked for at once: whoever sends random tokens must not make the operator a burden.
const AT_ONCE: usize = 4;
const TOKEN_MAX: usize = 16 * 1024;
/// How many connections may be in their handshake.
const HANDSHAKES: usize = 64;

/// How metrics are protected.
#[derive(Debug, Clone, Default)]
pub struct Secure {
    /// Where `tls.crt` and `tls.key` are; a certificate that this process signs itself when absent.
    pub cert_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Yes,
    /// The API server knows nobody by this token.
    Unknown,
    /// It knows who it is, and forbids it.
    Forbidden,
}

type Verdicts = HashMap<([u8; 32], String), (Instant, Verdict)>;

pub(super) struct Guarded {
    client: Client,
    metrics: Arc<Metrics>,
    certificate: Certificate,
    verdicts: Mutex<Verdicts>,
    reviews: Semaphore,
}

impl Guarded {
    pub(super) fn new(secure: &Secure, client: Client, metrics: Arc<Metrics>) -> Result<Self, String> {
        Ok(Self {
            client,
            metrics,
            certificate: Certificate::new(secure.cert_dir.as_deref())?,
            verdicts: Mutex::default(),
            reviews: Semaphore::new(AT_ONCE),
        })
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, String> {
        let id = (Sha256::digest(token).into(), path.to_owned());
        if let Some(kept) = self.kept(&id) {
            return Ok(kept);
        }
        let _turn = self.reviews.acquire().await.map_err(|e| e.to_string())?;
        // Another request with the same token may have been before.
        if let Some(kept) = self.kept(&id) {
            return Ok(kept);
        }
        let verdict = tokio::time::timeout(REVIEW, self.review(token, path))
            .await
            .map_err(|_| format!("no answer within {REVIEW:?}"))??;
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.retain(|_, (at, verdict)| still(*at, *verdict));
        if verdicts.len() < VERDICTS {
            verdicts.insert(id, (Instant::now(), verdict));
        }
        Ok(verdict)
    }

    fn kept(&self, id: &([u8; 32], String)) -> Option<Verdict> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, verdict) = verdicts.get(id)?;
        still(*at, *verdict).then_some(*verdict)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Verdict, String> {
        let params = PostParams::default();
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let review = Api::<TokenReview>::all(self.client.clone())
            .create(&params, &review)
            .await;
        self.count("tokenreviews.authentication.k8s.io", &review);
        let status = review
            .map_err(|e| super::api::chain(&e))?
            .status
            .unwrap_or_default();
        let user = match status.user {
            Some(user) if status.authenticated == Some(true) => user,
            _ => return Ok(Verdict::Unknown),
        };
        let access = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let access = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&params, &access)
            .await;
        self.count("subjectaccessreviews.authorization.k8s.io", &access);
        let status = access.map_err(|e| super::api::chain(&e))?.status;
        let allowed = status.is_some_and(|s| s.allowed && s.denied != Some(true));
        Ok(if allowed { Verdict::Yes } else { Verdict::Forbidden })
    }

    fn count<T>(&self, resource: &str, result: &Result<T, kube::Error>) {
        let code = match result {
            Ok(_) => Some(201),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        self.metrics.request("create", resource, code);
    }
}

fn still(at: Instant, verdict: Verdict) -> bool {
    at.elapsed() < if verdict == Verdict::Yes { YES } else { NO }
}

/// Lets through whom the API server permits to read this path.
pub(super) async fn guard(State(guarded): State<Arc<Guarded>>, request: Request, next: Next) -> Response {
    let unknown = || {
        let bearer = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
        let says = "a bearer token that the API server accepts is needed\n";
        (StatusCode::UNAUTHORIZED, bearer, says).into_response()
    };
    let authorization = request.headers().get(header::AUTHORIZATION);
    let token = authorization
        .and_then(|value| value.to_str().ok()?.split_once(' '))
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && token.len() <= TOKEN_MAX)
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty());
    let Some(token) = token else { return unknown() };
    let path = request.uri().path();
    match guarded.verdict(token, path).await {
        Ok(Verdict::Yes) => next.run(request).await,
        Ok(Verdict::Unknown) => unknown(),
        Ok(Verdict::Forbidden) => {
            let says = format!("not permitted; grant the verb get on the nonResourceURL {path}\n");
            (StatusCode::FORBIDDEN, says).into_response()
        }
        Err(error) => {
            tracing::warn!(error, "who reads the metrics could not be reviewed");
            let says = "the review by the API server failed\n";
            (StatusCode::INTERNAL_SERVER_ERROR, says).into_response()
        }
    }
}

/// Accepts connections and speaks TLS on them. Who is slow in the handshake holds up nobody.
pub(super) struct Encrypted {
    listener: TcpListener,
    guarded: Arc<Guarded>,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl Encrypted {
    pub(super) fn new(listener: TcpListener, guarded: Arc<Guarded>) -> Self {
        Self {
            listener,
            guarded,
            handshakes: JoinSet::new(),
        }
    }
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next(), if !self.handshakes.is_empty() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                (stream, address) = Listener::accept(&mut self.listener),
                    if self.handshakes.len() < HANDSHAKES =>
                {
                    let acceptor = self.guarded.certificate.acceptor();
                    self.handshakes.spawn(async move {
                        match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => Some((stream, address)),
                            Ok(Err(error)) => {
                                tracing::debug!(%error, "no TLS with this client");
                                None
                            }
                            Err(_) => None,
                        }
                    });
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The certificate that is shown. One that is mounted is read again when it changed: they are renewed.
struct Certificate {
    files: Option<(PathBuf, PathBuf)>,
    current: Mutex<(Option<SystemTime>, TlsAcceptor)>,
}

impl Certificate {
    fn new(folder: Option<&Path>) -> Result<Self, String> {
        let files = folder.map(|f| (f.join("tls.crt"), f.join("tls.key")));
        let acceptor = match &files {
            Some((certificate, key)) => from_files(certificate, key)?,
            None => self_signed()?,
        };
        let changed = files.as_ref().and_then(|(certificate, _)| changed(certificate));
        let current = Mutex::new((changed, acceptor));
        Ok(Self { files, current })
    }

    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, key)) = &self.files {
            let at = changed(certificate);
            if at != current.0 {
                match from_files(certificate, key) {
                    Ok(acceptor) => *current = (at, acceptor),
                    // Half written, perhaps: the old one serves on, and the next connection tries again.
                    Err(error) => tracing::warn!(error, "the renewed certificate cannot be used"),
                }
            }
        }
        current.1.clone()
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|m| m.modified()).ok()
}

fn from_files(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let in_file = |file: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| in_file(certificate, &e))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| in_file(key, &e))?;
    acceptor(chain, secret).map_err(|e| in_file(certificate, &e))
}

fn self_signed() -> Result<TlsAcceptor, String> {
    let made =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "leasewarden-operator".to_owned()])
            .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    acceptor(vec![made.cert.der().clone()], key)
}

fn acceptor(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| e.to_string())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
