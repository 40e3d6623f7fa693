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

#[cfg(test)]
mod tests {
    use crate::bindings::base::exports::setu::connector::connector::Guest;
    use crate::*;

    /// Something.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(crate = "setu_sdk::serde", deny_unknown_fields)]
    #[schemars(crate = "setu_sdk::schemars")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Settings {
        /// Where the server is.
        #[schemars(extend("x-setu-grant" = "network", "x-setu-default-port" = 5432, "x-setu-secret" = true))]
        url: String,
        #[serde(default)]
        batch: u32,
    }

    #[derive(Debug)]
    struct Nothing;

    impl Source for Nothing {
        type Config = Settings;
        type Reader = Nothing;
        fn open(_: Settings) -> Result<Self> {
            Ok(Nothing)
        }
        fn check(&mut self) -> Result<()> {
            Ok(())
        }
        fn discover(&mut self) -> Result<Vec<StreamInfo>> {
            Ok(Vec::new())
        }
        fn read(&mut self, _: ReadRequest) -> Result<Nothing> {
            Ok(Nothing)
        }
    }

    impl Reader for Nothing {
        fn schema(&self) -> Schema {
            Schema::new([])
        }
        fn next(&mut self, _: BatchLimit) -> Result<Option<Chunk>> {
            Ok(None)
        }
    }

    mod by_default {
        use super::{Guest, Nothing};
        crate::source!(Nothing);
        pub(super) fn describe() -> super::export::Description {
            __SetuConnector::describe()
        }
    }

    mod by_name {
        use super::{Guest, Nothing};
        crate::source!(Nothing, name = "orders");
        pub(super) fn describe() -> super::export::Description {
            __SetuConnector::describe()
        }
    }

    #[test]
    fn a_connector_is_described_by_its_package_and_its_types() {
        let description = by_default::describe();
        assert_eq!(description.name, "setu-sdk");
        assert_eq!(description.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(description.summary, env!("CARGO_PKG_DESCRIPTION"));
        assert_eq!(description.destination_config_schema, None);
        assert_eq!(by_name::describe().name, "orders");

        let schema = description.source_config_schema.expect("a source has a schema");
        let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], serde_json::json!(["url"]));
        let url = &schema["properties"]["url"];
        assert_eq!(url["description"], "Where the server is.");
        assert_eq!(url["x-setu-grant"], "network");
        assert_eq!(url["x-setu-default-port"], 5432);
        assert_eq!(url["x-setu-secret"], true);
    }

    #[test]
    fn a_name_is_what_the_contract_allows() {
        for (package, name) in [
            ("setu-plugin-csv", "csv"),
            ("My_Connector", "my-connector"),
            ("x2", "x2"),
        ] {
            assert_eq!(super::name_from_package(package), name);
        }
    }

    #[test]
    fn a_config_that_does_not_fit_is_an_error_of_its_kind() {
        let parse = |json| parse_config::<Settings>(json).map(|_| ()).unwrap_err();
        assert_eq!(parse("{}").kind(), ErrorKind::Config);
        assert!(
            parse(r#"{"url": "x", "ulr": 1}"#)
                .message()
                .contains("unknown field `ulr`")
        );
    }
}
