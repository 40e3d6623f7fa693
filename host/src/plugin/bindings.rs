//! The contract, version 0.1.0, as wasmtime sees it: generated from `wit/setu.wit`.
//!
//! One world, the one that exports everything, is bound, so that each type of the contract is one Rust type. A
//! connector that exports only one half is used through the indices of that half; nothing here demands both. A new
//! version of the contract becomes a second module beside this one, and `convert` grows a second set of edges.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "plugin",
    imports: { default: async | trappable },
    exports: { default: async },
    // Batches are lowered from Arrow's own buffers; what the guest returns is owned.
    ownership: Borrowing { duplicate_if_necessary: true },
    with: { "setu:connector/net.connection": crate::plugin::net::NetConnection },
});
