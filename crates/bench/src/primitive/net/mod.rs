//! The network: connections, transfers, datagrams, remote calls, readiness, and both ends of a measurement
//! between two hosts.

pub(crate) mod bulk;
pub(crate) mod connection;
pub(crate) mod cork;
pub(crate) mod datagram;
pub(crate) mod empty;
pub(crate) mod event;
pub(crate) mod http;
pub(crate) mod peer;
pub(crate) mod ready;
pub(crate) mod remote;
pub(crate) mod rpc;
pub mod serve;
pub(crate) mod socket_call;
pub(crate) mod tcp;
