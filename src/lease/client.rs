//! The HTTP client: kube's, but for connections that send at once.
//!
//! kube leaves Nagle's algorithm on. A request on a new connection is then a small write behind the last one of the TLS
//! handshake, and waits for an acknowledgement that the server's kernel delays by 40 ms. A standby's first request in a
//! long time is on a new connection, and it is the one that takes over.

use kube::{Client, Config, client::ClientBuilder};

/// A client for `config`. Where a proxy leads to the API server, or no TLS was chosen among this crate's features, it is
/// kube's own.
///
/// # Errors
/// As kube's.
pub(super) fn client(config: &Config) -> kube::Result<Client> {
    #[cfg(any(feature = "rustls-tls", feature = "openssl-tls"))]
    if config.proxy_url.is_none() {
        // For what kube sets up in the process, such as a provider for rustls. Without the credentials: a program that
        // fetches them would run for nothing.
        let mut bare = Config::new(config.cluster_url.clone());
        bare.root_cert.clone_from(&config.root_cert);
        bare.accept_invalid_certs = config.accept_invalid_certs;
        ClientBuilder::try_from(bare)?;
        return prompt(config);
    }
    Ok(ClientBuilder::try_from(config.clone())?.build())
}

#[cfg(any(feature = "rustls-tls", feature = "openssl-tls"))]
fn prompt(config: &Config) -> kube::Result<Client> {
    use hyper_util::{
        client::legacy::{Client as HttpClient, connect::HttpConnector},
        rt::TokioExecutor,
    };
    use kube::client::{Body, ConfigExt};
    use tower::ServiceBuilder;

    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    #[cfg(feature = "rustls-tls")]
    let connector = config.rustls_https_connector_with_connector(connector)?;
    #[cfg(not(feature = "rustls-tls"))]
    let connector = config.openssl_https_connector_with_connector(connector)?;
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, &config.default_namespace).build())
}
