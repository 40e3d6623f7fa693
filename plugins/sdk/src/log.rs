//! Log lines, which the host labels with connector, stream and run.
//!
//! ```
//! # let (table, rows) = ("orders", 12);
//! setu_sdk::log::info!("reading {table}"; rows = rows);
//! ```

#[doc(inline)]
pub use crate::{__debug as debug, __error as error, __info as info, __trace as trace, __warn as warn};

pub use crate::bindings::base::setu::connector::log::Level;

/// Writes one line. `fields` are names and values that belong to the message. Outside a component the line goes to
/// standard error.
pub fn log(level: Level, message: &str, fields: &[(String, String)]) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::base::setu::connector::log::log(level, message, fields);
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?} {message} {fields:?}");
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log {
    ($level:ident, $format:literal $(, $arg:expr)* $(,)? $(; $($key:ident = $value:expr),+ $(,)?)?) => {
        $crate::log::log(
            $crate::log::Level::$level,
            &::std::format!($format $(, $arg)*),
            &[$($((::std::string::String::from(::std::stringify!($key)), ::std::string::ToString::to_string(&$value))),+)?],
        )
    };
}

/// A line of level `trace`: `trace!("format {}", argument; key = value)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __trace { ($($t:tt)+) => { $crate::__log!(Trace, $($t)+) }; }
/// A line of level `debug`: `debug!("format {}", argument; key = value)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __debug { ($($t:tt)+) => { $crate::__log!(Debug, $($t)+) }; }
/// A line of level `info`: `info!("format {}", argument; key = value)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __info { ($($t:tt)+) => { $crate::__log!(Info, $($t)+) }; }
/// A line of level `warn`: `warn!("format {}", argument; key = value)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __warn { ($($t:tt)+) => { $crate::__log!(Warn, $($t)+) }; }
/// A line of level `error`: `error!("format {}", argument; key = value)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __error { ($($t:tt)+) => { $crate::__log!(Error, $($t)+) }; }
