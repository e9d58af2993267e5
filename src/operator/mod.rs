//! Keeps `ChangeStreamLeader`s true. stub
mod conditions;
mod history;
mod projection;
mod view;
