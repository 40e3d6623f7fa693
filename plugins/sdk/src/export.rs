//! The macros that turn an author's types into a component.

use crate::bindings::base::exports::setu::connector::connector::Description;
use crate::{Config, Destination, Source};

/// The JSON Schema (2020-12) of a configuration, as text.
pub fn config_schema<C: Config>() -> String {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    settings
        .into_generator()
        .into_root_schema_for::<C>()
        .to_value()
        .to_string()
}

/// A connector's name from its package's: lower case, hyphens, without the prefix `setu-plugin-`.
fn name_from_package(package: &str) -> String {
    let name = package.to_lowercase().replace('_', "-");
    name.strip_prefix("setu-plugin-").unwrap_or(&name).to_owned()
}

#[doc(hidden)]
pub fn describe(
    name: Option<&str>,
    package: &str,
    version: &str,
    summary: &str,
    source_config_schema: Option<String>,
    destination_config_schema: Option<String>,
) -> Description {
    Description {
        name: name.map_or_else(|| name_from_package(package), str::to_owned),
        version: version.to_owned(),
        summary: summary.to_owned(),
        source_config_schema,
        destination_config_schema,
    }
}

#[doc(hidden)]
pub fn source_schema<S: Source>() -> Option<String> {
    Some(config_schema::<S::Config>())
}

#[doc(hidden)]
pub fn destination_schema<D: Destination>() -> Option<String> {
    Some(config_schema::<D::Config>())
}

/// Makes the crate a component that is a source: `source!(MySource)`.
///
/// Name, version and summary are the package's `name` (without a prefix `setu-plugin-`), `version` and `description`;
/// `source!(MySource, name = "orders")` names it otherwise. The crate must be a `cdylib`. In a native build nothing is
/// exported, so that unit tests run.
#[macro_export]
macro_rules! source {
    ($source:ty $(, name = $name:literal)? $(,)?) => {
        $crate::__connector!([$($name)?], $crate::export::source_schema::<$source>(), ::core::option::Option::None);
        $crate::__source!($source);
    };
}

/// Makes the crate a component that is a destination: `destination!(MyDestination)`. See [`source!`].
#[macro_export]
macro_rules! destination {
    ($destination:ty $(, name = $name:literal)? $(,)?) => {
        $crate::__connector!(
            [$($name)?], ::core::option::Option::None, $crate::export::destination_schema::<$destination>()
        );
        $crate::__destination!($destination);
    };
}

/// Makes the crate a component that is both: `connector!(MySource, MyDestination)`. See [`source!`].
#[macro_export]
macro_rules! connector {
    ($source:ty, $destination:ty $(, name = $name:literal)? $(,)?) => {
        $crate::__connector!(
            [$($name)?],
            $crate::export::source_schema::<$source>(),
            $crate::export::destination_schema::<$destination>()
        );
        $crate::__source!($source);
        $crate::__destination!($destination);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __connector {
    ([$($name:literal)?], $source_schema:expr, $destination_schema:expr) => {
        #[doc(hidden)]
        #[derive(Debug)]
        struct __SetuConnector;

        impl $crate::bindings::base::exports::setu::connector::connector::Guest for __SetuConnector {
            fn describe() -> $crate::bindings::base::exports::setu::connector::connector::Description {
                let name: ::core::option::Option<&str> = [$($name)?].first().copied();
                $crate::export::describe(
                    name,
                    ::core::env!("CARGO_PKG_NAME"),
                    ::core::env!("CARGO_PKG_VERSION"),
                    ::core::env!("CARGO_PKG_DESCRIPTION"),
                    $source_schema,
                    $destination_schema,
                )
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::base::export!(__SetuConnector);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __source {
    ($source:ty) => {
        impl $crate::bindings::source::exports::setu::connector::source::Guest for __SetuConnector {
            type Connection = $crate::source::SourceConnection<$source>;
            type Reader = $crate::source::SourceReader<<$source as $crate::Source>::Reader>;
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::source::export!(__SetuConnector);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __destination {
    ($destination:ty) => {
        impl $crate::bindings::destination::exports::setu::connector::destination::Guest for __SetuConnector {
            type Connection = $crate::destination::DestinationConnection<$destination>;
            type Writer =
                $crate::destination::DestinationWriter<<$destination as $crate::Destination>::Writer>;
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::destination::export!(__SetuConnector);
    };
}
