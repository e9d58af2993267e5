//! Each pattern against a leader that was deposed: its write, sent before, arrives late.

use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::{Request, StatusCode, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use leasewarden::FencingToken;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, memory::InMemory, path::Path};
use rusqlite::Connection;

use crate::{document, http, object, sql};

fn token(n: i64) -> FencingToken {
    FencingToken::new(n).unwrap()
}

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    sql::create(&db).unwrap();
    document::create(&db).unwrap();
    db
}

fn balance(db: &Connection) -> (i64, i64) {
    let row = "SELECT cents, token FROM balance WHERE account = 'savings'";
    db.query_row(row, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

#[test]
fn a_row_refuses_an_older_token_and_stays_as_it_is() {
    let db = database();
    assert!(sql::set_balance(&db, "savings", 100, token(7)).unwrap());
    assert!(sql::set_balance(&db, "savings", 150, token(7)).unwrap());
    assert!(sql::set_balance(&db, "savings", 200, token(9)).unwrap());
    assert!(!sql::set_balance(&db, "savings", 175, token(7)).unwrap());
    assert_eq!(balance(&db), (200, 9));
}

/// What the page warns of: a fence in each row protects that row alone.
#[test]
fn a_row_that_no_later_leader_has_written_takes_an_older_token() {
    let db = database();
    assert!(sql::set_balance(&db, "other", 1, token(9)).unwrap());
    assert!(sql::set_balance(&db, "savings", 175, token(7)).unwrap());
}

fn journal(db: &Connection) -> Vec<String> {
    let mut entries = db.prepare("SELECT entry FROM journal ORDER BY position").unwrap();
    entries
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn a_fence_of_the_stream_refuses_all_of_an_older_leaders_rows() {
    let mut db = database();
    assert!(sql::append(&mut db, "orders", &[(1, "a"), (2, "b")], token(7)).unwrap());
    // The new leader raises the fence before it has anything to write.
    assert!(sql::append(&mut db, "orders", &[], token(9)).unwrap());
    assert!(!sql::append(&mut db, "orders", &[(3, "late")], token(7)).unwrap());
    assert!(sql::append(&mut db, "payments", &[(4, "another stream's")], token(1)).unwrap());
    assert_eq!(journal(&db), ["a", "b", "another stream's"]);
}

#[test]
fn a_transaction_that_fails_half_way_leaves_neither_rows_nor_a_raised_fence() {
    let mut db = database();
    assert!(sql::append(&mut db, "orders", &[(1, "a")], token(7)).unwrap());
    sql::append(&mut db, "orders", &[(2, "b"), (1, "twice")], token(9)).unwrap_err();
    assert!(sql::append(&mut db, "orders", &[(2, "c")], token(7)).unwrap());
    assert_eq!(journal(&db), ["a", "c"]);
}

#[test]
fn a_deposed_leader_moves_no_resume_position() {
    let db = database();
    let first = document::take_over(&db, "orders", token(7)).unwrap().unwrap();
    assert_eq!(first.get("resumeAfter"), None);
    assert!(document::save_position(&db, "orders", "p1", token(7)).unwrap());
    let second = document::take_over(&db, "orders", token(9)).unwrap().unwrap();
    assert_eq!(second["resumeAfter"], "p1");
    // Also where the next leader has saved nothing yet.
    assert!(!document::save_position(&db, "orders", "p2", token(7)).unwrap());
    assert_eq!(document::take_over(&db, "orders", token(7)).unwrap(), None);
    assert!(document::save_position(&db, "orders", "p3", token(9)).unwrap());
    let third = document::take_over(&db, "orders", token(10)).unwrap().unwrap();
    assert_eq!(third["resumeAfter"], "p3");
}

async fn post(address: std::net::SocketAddr, entry: &'static str, token: Option<&str>) -> StatusCode {
    let connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(connection))
        .await
        .unwrap();
    let driver = tokio::spawn(driver);
    let mut request = Request::post("/orders").header("host", "ledger");
    if let Some(token) = token {
        request = request.header(http::FENCING_TOKEN, token);
    }
    let request = request.body(Full::<Bytes>::from(entry)).unwrap();
    let status = sender.send_request(request).await.unwrap().status();
    drop(sender);
    driver.await.unwrap().unwrap();
    status
}

#[tokio::test]
async fn a_service_refuses_an_older_token_and_requests_without_one() {
    let ledger = Arc::new(Mutex::new(http::Ledger::default()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::clone(&ledger);
    // Ends with the test's runtime.
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let ledger = Arc::clone(&served);
            let service = service_fn(move |request| http::serve(Arc::clone(&ledger), request));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(connection), service),
            );
        }
    });
    for (entry, token, status) in [
        ("a", Some("7"), StatusCode::NO_CONTENT),
        ("b", Some("9"), StatusCode::NO_CONTENT),
        ("late", Some("7"), StatusCode::PRECONDITION_FAILED),
        ("c", Some("9"), StatusCode::NO_CONTENT),
        ("bare", None, StatusCode::PRECONDITION_REQUIRED),
        ("zero", Some("0"), StatusCode::PRECONDITION_REQUIRED),
        ("words", Some("seven"), StatusCode::PRECONDITION_REQUIRED),
    ] {
        assert_eq!(post(address, entry, token).await, status, "{entry}");
    }
    assert_eq!(ledger.lock().unwrap().entries, ["a", "b", "c"]);
}

async fn content(store: &dyn ObjectStore, at: &Path) -> String {
    let bytes = store.get(at).await.unwrap().bytes().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn an_object_refuses_an_older_token() {
    let (store, at) = (InMemory::new(), Path::from("orders/snapshot"));
    assert!(object::put(&store, &at, "a", token(7)).await.unwrap());
    assert!(object::put(&store, &at, "b", token(9)).await.unwrap());
    assert!(!object::put(&store, &at, "late", token(7)).await.unwrap());
    assert!(content(&store, &at).await.contains(r#""content":"b""#));
    // Not ours: left alone.
    let foreign = Path::from("foreign");
    store.put(&foreign, PutPayload::from("no JSON")).await.unwrap();
    assert!(!object::put(&store, &foreign, "c", token(9)).await.unwrap());
}

/// The read is not the fence; the condition of the write is.
#[tokio::test]
async fn a_leader_that_is_deposed_between_reading_and_writing_writes_nothing() {
    let (store, at) = (InMemory::new(), Path::from("orders/snapshot"));
    let to_create = object::condition(&store, &at, token(7)).await.unwrap().unwrap();
    assert!(object::put(&store, &at, "a", token(7)).await.unwrap());
    let to_update = object::condition(&store, &at, token(7)).await.unwrap().unwrap();
    assert!(object::put(&store, &at, "b", token(9)).await.unwrap());
    let late = |mode: PutMode| store.put_opts(&at, PutPayload::from("late"), mode.into());
    assert!(matches!(late(to_create).await, Err(Error::AlreadyExists { .. })));
    assert!(matches!(late(to_update).await, Err(Error::Precondition { .. })));
    assert!(content(&store, &at).await.contains(r#""content":"b""#));
}
