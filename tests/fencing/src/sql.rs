//! SQL: the token stands in the row that is written, and one statement checks and writes.

use leasewarden::FencingToken;
use rusqlite::{Connection, Result, params};

/// A balance for each account, and the token of the leader that wrote it last.
///
/// # Errors
/// The database's.
pub fn create(db: &Connection) -> Result<()> {
    db.execute_batch(
        "CREATE TABLE balance (account TEXT PRIMARY KEY, cents INTEGER NOT NULL, token INTEGER NOT NULL);
         CREATE TABLE fence (stream TEXT PRIMARY KEY, token INTEGER NOT NULL);
         CREATE TABLE journal (position INTEGER PRIMARY KEY, entry TEXT NOT NULL);",
    )
}

// [one-row]
/// Writes one row. False: a later leader has written it; nothing is changed.
pub fn set_balance(db: &Connection, account: &str, cents: i64, token: FencingToken) -> Result<bool> {
    let rows = db.execute(
        "INSERT INTO balance (account, cents, token) VALUES (?1, ?2, ?3)
         ON CONFLICT (account) DO UPDATE SET cents = ?2, token = ?3 WHERE token <= ?3",
        params![account, cents, token.get()],
    )?;
    Ok(rows == 1)
}
// [one-row]

// [many-rows]
/// Writes many rows, of any tables, under one fence for the stream. The fence's row is written first: it stays locked
/// until the transaction ends, so that no other leader gets in between. False: nothing is changed.
pub fn append(
    db: &mut Connection,
    stream: &str,
    entries: &[(i64, &str)],
    token: FencingToken,
) -> Result<bool> {
    let transaction = db.transaction()?;
    let raised = transaction.execute(
        "INSERT INTO fence (stream, token) VALUES (?1, ?2)
         ON CONFLICT (stream) DO UPDATE SET token = ?2 WHERE token <= ?2",
        params![stream, token.get()],
    )?;
    if raised == 0 {
        return Ok(false);
    }
    for (position, entry) in entries {
        transaction.execute(
            "INSERT INTO journal (position, entry) VALUES (?1, ?2)",
            params![position, entry],
        )?;
    }
    transaction.commit()?;
    Ok(true)
}
// [many-rows]
