//! Object stores: the token stands in the object, and a write is conditioned on the version in which it was read (`If-Match`).

use leasewarden::FencingToken;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, Result, UpdateVersion, path::Path};
use serde_json::{Value, json};

// [object]
/// On what condition a leader may write the object now; `None` when a later leader has written it.
pub async fn condition(store: &dyn ObjectStore, at: &Path, token: FencingToken) -> Result<Option<PutMode>> {
    let found = match store.get(at).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return Ok(Some(PutMode::Create)),
        Err(error) => return Err(error),
    };
    let version = UpdateVersion {
        e_tag: found.meta.e_tag.clone(),
        version: found.meta.version.clone(),
    };
    // What has no token was not written by these functions; to refuse is the safe reading of it.
    let stored: Value = serde_json::from_slice(&found.bytes().await?).unwrap_or_default();
    let older = stored["token"]
        .as_i64()
        .is_some_and(|highest| highest <= token.get());
    Ok(older.then_some(PutMode::Update(version)))
}

/// Writes an object. False: a later leader has written it; nothing is changed.
pub async fn put(store: &dyn ObjectStore, at: &Path, content: &str, token: FencingToken) -> Result<bool> {
    let body = json!({ "token": token.get(), "content": content }).to_string();
    while let Some(mode) = condition(store, at, token).await? {
        match store.put_opts(at, body.clone().into(), mode.into()).await {
            Ok(_) => return Ok(true),
            // Somebody wrote in between: look at what it is now.
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
// [object]
