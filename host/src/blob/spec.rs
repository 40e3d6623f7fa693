//! The configuration of a blob store: as JSON, and as environment variables.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::BlobError;

/// The serialised configuration of a blob store, as a control plane hands it to an agent.
///
/// JSON keys: `backend` (`fs` or `s3`), `fsRoot`, `endpoint`, `region`, `bucket`, `accessKey`, `secretKey`,
/// `forcePathStyle`, each left out when empty. Each has an environment variable: `SETU_BLOB_BACKEND`,
/// `SETU_BLOB_FS_ROOT` and so on.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Spec {
    /// `fs` or `s3`; empty: nothing is configured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub backend: String,
    /// The root folder of `fs`. A relative one is resolved by the caller, who knows what it is relative to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_root: String,
    /// The URL of an S3 server; empty: AWS.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The S3 region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The S3 bucket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bucket: String,
    /// The S3 access key id; empty: the default credential chain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// The S3 secret key. Never printed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_key: String,
    /// Whether the bucket stands in the path of a URL rather than in its host name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force_path_style: bool,
}

impl Spec {
    /// Whether nothing at all is configured, so that a default applies.
    pub fn is_empty(&self) -> bool {
        *self == Spec::default()
    }

    /// What the process's `SETU_BLOB_*` environment variables say.
    pub fn from_env() -> Result<Spec, BlobError> {
        Spec::from_lookup(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(BlobError::Config(format!("{name} is not valid UTF-8")))
            }
        })
    }

    /// What the `SETU_BLOB_*` variables say that `lookup` knows. An empty variable counts as none.
    pub fn from_lookup(
        lookup: impl Fn(&'static str) -> Result<Option<String>, BlobError>,
    ) -> Result<Spec, BlobError> {
        let text = |name| Ok(lookup(name)?.unwrap_or_default());
        Ok(Spec {
            backend: text("SETU_BLOB_BACKEND")?,
            fs_root: text("SETU_BLOB_FS_ROOT")?,
            endpoint: text("SETU_BLOB_ENDPOINT")?,
            region: text("SETU_BLOB_REGION")?,
            bucket: text("SETU_BLOB_BUCKET")?,
            access_key: text("SETU_BLOB_ACCESS_KEY")?,
            secret_key: text("SETU_BLOB_SECRET_KEY")?,
            force_path_style: parse_bool("SETU_BLOB_FORCE_PATH_STYLE", &text("SETU_BLOB_FORCE_PATH_STYLE")?)?,
        })
    }

    /// Checks that the settings of the chosen backend are there and make sense. The error names the setting, by its
    /// JSON key and its variable.
    pub fn validate(&self) -> Result<(), BlobError> {
        match self.backend.as_str() {
            "fs" => require("fsRoot", "SETU_BLOB_FS_ROOT", &self.fs_root, "fs"),
            "s3" => self.validate_s3(),
            "" => {
                config("no backend is chosen; set `backend` (SETU_BLOB_BACKEND) to `fs` or `s3`".to_owned())
            }
            other => config(format!(
                "`backend` (SETU_BLOB_BACKEND) is `{other}`; known are `fs` and `s3`"
            )),
        }
    }

    fn validate_s3(&self) -> Result<(), BlobError> {
        require("bucket", "SETU_BLOB_BUCKET", &self.bucket, "s3")?;
        // One without the other would silently fall back to the default chain.
        if !self.access_key.is_empty() {
            require(
                "secretKey",
                "SETU_BLOB_SECRET_KEY",
                &self.secret_key,
                "s3 with an `accessKey`",
            )?;
        }
        if !self.secret_key.is_empty() {
            require(
                "accessKey",
                "SETU_BLOB_ACCESS_KEY",
                &self.access_key,
                "s3 with a `secretKey`",
            )?;
        }
        if self.endpoint.is_empty() {
            return Ok(());
        }
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| self.endpoint.strip_prefix(scheme))
            .map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        match host {
            // The endpoint is printed in messages, so it cannot hold a password.
            Some(host) if host.contains('@') => config(
                "`endpoint` (SETU_BLOB_ENDPOINT) holds credentials; put them into `accessKey` and `secretKey`"
                    .to_owned(),
            ),
            Some(host) if !host.is_empty() => Ok(()),
            _ => config("`endpoint` (SETU_BLOB_ENDPOINT) must be a URL that starts with http:// or https://".to_owned()),
        }
    }
}

/// Shows everything but the secrets, so that a specification can be logged.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &str| if secret.is_empty() { "" } else { "[hidden]" };
        f.debug_struct("Spec")
            .field("backend", &self.backend)
            .field("fs_root", &self.fs_root)
            // Until it is validated it may hold a password.
            .field("endpoint", &without_userinfo(&self.endpoint))
            .field("region", &self.region)
            .field("bucket", &self.bucket)
            .field("access_key", &hidden(&self.access_key))
            .field("secret_key", &hidden(&self.secret_key))
            .field("force_path_style", &self.force_path_style)
            .finish()
    }
}

fn without_userinfo(endpoint: &str) -> String {
    match (endpoint.find("://"), endpoint.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}://[hidden]{}", &endpoint[..scheme], &endpoint[at..])
        }
        (None, Some(at)) => format!("[hidden]{}", &endpoint[at..]),
        _ => endpoint.to_owned(),
    }
}

fn config<T>(message: String) -> Result<T, BlobError> {
    Err(BlobError::Config(message))
}

fn require(key: &str, variable: &str, value: &str, by: &str) -> Result<(), BlobError> {
    if value.is_empty() {
        return config(format!("backend {by} needs `{key}` ({variable})"));
    }
    Ok(())
}

fn parse_bool(name: &str, text: &str) -> Result<bool, BlobError> {
    match text.to_ascii_lowercase().as_str() {
        "" | "0" | "false" | "no" | "off" => Ok(false),
        "1" | "true" | "yes" | "on" => Ok(true),
        _ => config(format!("{name} is `{text}`; write `true` or `false`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Spec {
        Spec {
            backend: "s3".into(),
            fs_root: "/data".into(),
            endpoint: "https://minio:9000/path".into(),
            region: "eu-central-1".into(),
            bucket: "rows".into(),
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI".into(),
            force_path_style: true,
        }
    }

    fn from_pairs(pairs: &[(&str, &str)]) -> Result<Spec, BlobError> {
        Spec::from_lookup(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    #[test]
    fn json_and_environment_give_equal_specs() {
        let json = r#"{"backend":"s3","fsRoot":"/data","endpoint":"https://minio:9000/path","region":"eu-central-1","bucket":"rows","accessKey":"AKIDEXAMPLE","secretKey":"wJalrXUtnFEMI","forcePathStyle":true}"#;
        assert_eq!(serde_json::to_string(&full()).unwrap(), json);
        let parsed: Spec = serde_json::from_str(json).unwrap();
        assert!(parsed == full());
        let environment = from_pairs(&[
            ("SETU_BLOB_BACKEND", "s3"),
            ("SETU_BLOB_FS_ROOT", "/data"),
            ("SETU_BLOB_ENDPOINT", "https://minio:9000/path"),
            ("SETU_BLOB_REGION", "eu-central-1"),
            ("SETU_BLOB_BUCKET", "rows"),
            ("SETU_BLOB_ACCESS_KEY", "AKIDEXAMPLE"),
            ("SETU_BLOB_SECRET_KEY", "wJalrXUtnFEMI"),
            ("SETU_BLOB_FORCE_PATH_STYLE", "true"),
        ]);
        assert!(environment.unwrap() == full());
    }

    #[test]
    fn empty_settings_are_left_out_and_count_as_none() {
        let fs = from_pairs(&[("SETU_BLOB_BACKEND", "fs"), ("SETU_BLOB_FS_ROOT", "x")]).unwrap();
        assert_eq!(
            serde_json::to_string(&fs).unwrap(),
            r#"{"backend":"fs","fsRoot":"x"}"#
        );
        let none = from_pairs(&[("SETU_BLOB_BACKEND", ""), ("SETU_BLOB_FORCE_PATH_STYLE", "")]).unwrap();
        assert!(none.is_empty());
        assert_eq!(serde_json::to_string(&none).unwrap(), "{}");
        assert!(!fs.is_empty());
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut spec = full();
        spec.endpoint = "https://user:hunter2@minio/x".into();
        let text = format!("{spec:?}");
        for secret in ["AKIDEXAMPLE", "wJalrXUtnFEMI", "hunter2", "user"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("rows"), "{text}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let with = |change: fn(&mut Spec)| {
            let mut spec = full();
            change(&mut spec);
            spec.validate().map_err(|e| e.to_string())
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|s| s.endpoint.clear()), Ok(()));
        type Change = fn(&mut Spec);
        let cases: [(Change, &str); 8] = [
            (|s| s.backend.clear(), "SETU_BLOB_BACKEND"),
            (|s| s.backend = "gcs".into(), "`gcs`"),
            (
                |s| {
                    s.backend = "fs".into();
                    s.fs_root.clear();
                },
                "SETU_BLOB_FS_ROOT",
            ),
            (|s| s.bucket.clear(), "SETU_BLOB_BUCKET"),
            (|s| s.secret_key.clear(), "SETU_BLOB_SECRET_KEY"),
            (|s| s.access_key.clear(), "SETU_BLOB_ACCESS_KEY"),
            (|s| s.endpoint = "minio:9000".into(), "SETU_BLOB_ENDPOINT"),
            (|s| s.endpoint = "http://u:hunter2@h".into(), "credentials"),
        ];
        for (change, word) in cases {
            let error = with(change).unwrap_err();
            assert!(error.contains(word), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("wJalr"), "{error}");
        }
        let error = from_pairs(&[("SETU_BLOB_FORCE_PATH_STYLE", "maybe")]).unwrap_err();
        assert!(
            error.to_string().contains("SETU_BLOB_FORCE_PATH_STYLE"),
            "{error}"
        );
    }
}
