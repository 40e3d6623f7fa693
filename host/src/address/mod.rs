//! Hosts and ports: what a text names, in one normal form, and which of them a grant covers.
//!
//! Everything here is a pure function of texts and addresses. A host is put into its normal form once, where it
//! enters (`host`), and from then on only normal forms are compared, so that no spelling of a host gets around a
//! grant. Names stay names: resolving them, and deciding what a resolved address may be used for, is the work of
//! `plugin`.

mod grant;
mod host;
mod text;

pub(crate) use grant::NetworkGrant;
pub(crate) use host::{Host, is_special};
pub(crate) use text::{Endpoint, endpoints, mask, passwords, percent_decode};
