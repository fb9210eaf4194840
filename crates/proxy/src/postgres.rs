//! PostgreSQL's protocol, version 3, as far as a relay has to read it (PostgreSQL's manual, *Frontend/Backend
//! Protocol*). Pure: everything here takes bytes and returns values.

pub mod authentication;
pub mod channel;
pub mod frame;
pub mod locks;
pub mod lookup;
pub mod prepared;
pub mod refusal;
pub mod result;
pub mod scram;
pub mod session;
pub mod startup;
pub mod statement;
pub mod text;
pub mod users;
