//! What `wit-bindgen` makes of `wit/setu.wit`. Not public API: the rest of the crate wraps or re-exports it.
//!
//! A component must export only the interfaces it has, so each exported interface gets a world of its own here; the
//! macros of [`crate::export`] pick those that a connector needs, and the linker unites their descriptions. All share
//! the types of the first.
#![allow(missing_docs, unreachable_pub, clippy::undocumented_unsafe_blocks)]

/// `log`, `net`, `types`, and the export of `connector`.
pub mod base {
    wit_bindgen::generate!({
        inline: "
            package setu:sdk-base;
            world base {
                import setu:connector/types@0.1.0;
                import setu:connector/log@0.1.0;
                import setu:connector/net@0.1.0;
                export setu:connector/connector@0.1.0;
            }",
        path: "../../wit",
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "setu_sdk::bindings::base",
        runtime_path: "::setu_sdk::wit_bindgen::rt",
        additional_derives: [PartialEq],
    });
}

/// The export of `source`.
pub mod source {
    wit_bindgen::generate!({
        inline: "
            package setu:sdk-source;
            world source-side { export setu:connector/source@0.1.0; }",
        path: "../../wit",
        with: { "setu:connector/types@0.1.0": crate::bindings::base::setu::connector::types },
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "setu_sdk::bindings::source",
        runtime_path: "::setu_sdk::wit_bindgen::rt",
        additional_derives: [PartialEq],
    });
}

/// The export of `destination`.
pub mod destination {
    wit_bindgen::generate!({
        inline: "
            package setu:sdk-destination;
            world destination-side { export setu:connector/destination@0.1.0; }",
        path: "../../wit",
        with: { "setu:connector/types@0.1.0": crate::bindings::base::setu::connector::types },
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "setu_sdk::bindings::destination",
        runtime_path: "::setu_sdk::wit_bindgen::rt",
        additional_derives: [PartialEq],
    });
}
