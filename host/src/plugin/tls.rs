//! What a server's certificate must prove, for connections made through `net`.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::bindings::setu::connector::net::{TlsOptions, Verification};

/// A connector for these options and the name to give the server; an error says which option is wrong.
pub(super) fn client(options: &TlsOptions) -> Result<(TlsConnector, ServerName<'static>), String> {
    let name = ServerName::try_from(options.server_name.clone()).map_err(|_| {
        format!(
            "`{}` is not a server name",
            super::text::printable(&options.server_name, 256)
        )
    })?;
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match options.verification {
        Verification::None => Arc::new(Lenient {
            roots: None,
            provider: provider.clone(),
        }),
        Verification::CertificateOnly => Arc::new(Lenient {
            roots: Some(roots(options)?),
            provider: provider.clone(),
        }),
        Verification::Full => WebPkiServerVerifier::builder_with_provider(roots(options)?, provider.clone())
            .build()
            .map_err(|error| format!("the trusted certificates cannot be used: {error}"))?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// A failed handshake for a person.
pub(super) fn explain(cause: &std::io::Error, options: &TlsOptions) -> String {
    let error = cause
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match error {
        // A bad signature is an issuer of the same name that is another one.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => {
            let roots = match options.ca_pem {
                Some(_) => "the CA certificate that was given",
                None => "the certificates that this system trusts",
            };
            format!("the server's certificate was not issued by {roots}")
        }
        Some(error) => error.to_string(),
        None => cause.to_string(),
    }
}

fn roots(options: &TlsOptions) -> Result<Arc<RootCertStore>, String> {
    let Some(pem) = &options.ca_pem else {
        return system_roots();
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("the CA certificate is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the CA certificate cannot be used: {error}"))?;
    }
    match roots.is_empty() {
        true => Err("the CA text holds no certificate: it must be PEM".to_owned()),
        false => Ok(Arc::new(roots)),
    }
}

/// The system's trusted certificates, read once in a process.
fn system_roots() -> Result<Arc<RootCertStore>, String> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!("a system certificate cannot be read: {error}");
        }
        roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    });
    match roots.is_empty() {
        true => Err("this system has no trusted certificates: give the CA certificate".to_owned()),
        false => Ok(roots.clone()),
    }
}

/// Checks less than the standard verifier: with roots everything but the name, without roots nothing but that the
/// server holds the key of the certificate that it shows.
#[derive(Debug)]
struct Lenient {
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            rustls::client::verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::{TcpListener, TcpStream};

    /// A certificate authority, and the configuration of a server that it vouches for under the name `db.example`.
    pub(crate) fn server() -> (String, Arc<rustls::ServerConfig>) {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["db.example".to_owned()])
            .and_then(|params| params.signed_by(&key, &authority))
            .unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            );
        (authority.as_ref().pem(), Arc::new(config.unwrap()))
    }

    fn handshake(server: &Arc<rustls::ServerConfig>, options: &TlsOptions) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(server.clone());
            let serve = async {
                let (stream, _) = listener.accept().await.unwrap();
                acceptor.accept(stream).await.ok()
            };
            let connect = async {
                let (connector, name) = client(options)?;
                let stream = TcpStream::connect(address).await.unwrap();
                let outcome = connector.connect(name, stream).await;
                outcome.map(drop).map_err(|cause| explain(&cause, options))
            };
            tokio::select! {
                outcome = connect => outcome,
                _ = async { serve.await; std::future::pending::<()>().await } => unreachable!(),
            }
        })
    }

    #[test]
    fn a_certificate_must_prove_what_was_asked_for() {
        let (authority, config) = server();
        let (stranger, _) = server();
        let (good, bad) = (Some(&authority), Some(&stranger));
        let cases = [
            (Verification::Full, "db.example", good, ""),
            (Verification::Full, "evil.example", good, "not valid for name"),
            (
                Verification::Full,
                "db.example",
                bad,
                "not issued by the CA certificate",
            ),
            (Verification::CertificateOnly, "evil.example", good, ""),
            (
                Verification::CertificateOnly,
                "db.example",
                bad,
                "not issued by the CA certificate",
            ),
            (Verification::None, "evil.example", bad, ""),
            (Verification::None, "10.0.0.1", None, ""),
            (Verification::Full, "not a name", good, "is not a server name"),
        ];
        for (verification, name, ca, expected) in cases {
            let options = TlsOptions {
                server_name: name.to_owned(),
                verification,
                ca_pem: ca.cloned(),
            };
            let outcome = handshake(&config, &options);
            match expected {
                "" => assert_eq!(outcome, Ok(()), "{options:?}"),
                expected => assert!(
                    outcome.as_ref().is_err_and(|e| e.contains(expected)),
                    "{outcome:?}: {options:?}"
                ),
            }
        }
    }

    #[test]
    fn a_ca_text_without_a_certificate_is_refused() {
        for text in [
            "",
            "not PEM",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        ] {
            let options = TlsOptions {
                server_name: "db.example".to_owned(),
                verification: Verification::Full,
                ca_pem: Some(text.to_owned()),
            };
            assert!(
                client(&options).is_err_and(|error| error.contains("the CA")),
                "{text:?}"
            );
        }
    }
}
