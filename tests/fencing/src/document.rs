//! A document store: the resume position of a change stream is saved with the token, on condition of the token.
//!
//! The store here is `SQLite` with JSON documents. It stands in for the one operation that matters, a conditional update of
//! one document, which document databases have too; none of them runs in this test.

use leasewarden::FencingToken;
use rusqlite::{Connection, OptionalExtension, Result, params};
use serde_json::Value;

/// A collection of resume positions, one document a stream.
///
/// # Errors
/// The database's.
pub fn create(db: &Connection) -> Result<()> {
    db.execute_batch("CREATE TABLE positions (id TEXT PRIMARY KEY, document TEXT NOT NULL)")
}

// [document]
/// Where a new leader resumes. It writes its token first, before it reads: from then on no earlier leader can move the position.
pub fn take_over(db: &Connection, stream: &str, token: FencingToken) -> Result<Option<Value>> {
    // In MongoDB: findOneAndUpdate({_id: stream, token: {$lte: token}}, {$set: {token: token}}, {upsert: true});
    // its duplicate-key error is the refusal.
    let document: Option<String> = db
        .query_row(
            "INSERT INTO positions (id, document) VALUES (?1, json_object('token', ?2))
             ON CONFLICT (id) DO UPDATE SET document = json_set(document, '$.token', ?2)
             WHERE document ->> 'token' <= ?2
             RETURNING document",
            params![stream, token.get()],
            |row| row.get(0),
        )
        .optional()?;
    Ok(document.map(|text| serde_json::from_str(&text).unwrap_or_default()))
}

/// Saves the position. False: another leader has taken over; this one must stop.
pub fn save_position(db: &Connection, stream: &str, resume_after: &str, token: FencingToken) -> Result<bool> {
    // In MongoDB: updateOne({_id: stream, token: token}, {$set: {resumeAfter: resume_after}}), matchedCount 1.
    let matched = db.execute(
        "UPDATE positions SET document = json_set(document, '$.resumeAfter', ?2)
         WHERE id = ?1 AND document ->> 'token' = ?3",
        params![stream, resume_after, token.get()],
    )?;
    Ok(matched == 1)
}
// [document]
