//! Admission in front of a database: transactions of many sessions run on few connections of the server, at
//! most as many at a time as a limit allows. The others wait in the guard, where they cost the server
//! nothing.
//!
//! The limit of the paper is one on connections (Fowler et al., *Using Performance Reflection in Systems
//! Software*, HotOS 2003). Here it is one on transactions, so that a session that thinks holds no place; that
//! of the paper is there to compare ([`Level::Sessions`]).
//!
//! The layers keep apart. [`postgres`] is the protocol, [`gate`] decides who may enter, by the [`class`] of a
//! session, and [`control`] sets its limit; they are pure, and [`tls`] is what both sides need to be
//! encrypted. [`Relay`] alone has sockets and a clock.

#![forbid(unsafe_code)]

pub mod class;
pub mod control;
pub mod gate;
pub mod postgres;
mod relay;
pub mod tls;

pub use relay::{
    Change, ClassCounts, Counts, Host, Level, Lookup, NoRelay, Options, Order, Relay, Server, Settings,
    State, TakeOver, Waits, listen_at,
};
