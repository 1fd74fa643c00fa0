//! The SRTP keys of a caller, read where str0m gets them: from its DTLS.
//!
//! str0m sets up the call and keeps it (ICE, DTLS, SCTP, RTCP). Media at tens of thousands of packets per second would
//! cost the generator more in str0m's machinery than the server under test needs, so a bench seals and opens RTP itself,
//! with rtc-srtp and the keys tapped here.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion, SrtpProfile,
};
use str0m::crypto::{CryptoError, CryptoProvider};

use crate::caller::crypto_provider;

thread_local! {
    /// What the last DTLS of this thread to finish yielded.
    static TAPPED: RefCell<Option<Keys>> = const { RefCell::new(None) };
}

/// What DTLS-SRTP exports (RFC 5764 §4.2), and which half is ours.
pub(crate) struct Keys {
    pub(crate) profile: SrtpProfile,
    /// client key, server key, client salt, server salt.
    pub(crate) material: Vec<u8>,
    /// Whether we were the DTLS client.
    pub(crate) client: bool,
}

/// The keys that str0m's DTLS yielded on this thread since the last call.
pub(crate) fn take() -> Option<Keys> {
    TAPPED.take()
}

/// str0m's provider with the tap in front of its DTLS.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let tapped = || Arc::new(CryptoProvider { dtls_provider: &Tap, ..base().clone() });
    Arc::clone(PROVIDER.get_or_init(tapped))
}

fn base() -> &'static CryptoProvider {
    static BASE: OnceLock<CryptoProvider> = OnceLock::new();
    BASE.get_or_init(crypto_provider)
}

#[derive(Debug)]
struct Tap;

impl DtlsProvider for Tap {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        base().dtls_provider.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        Ok(Box::new(Tapped(engine(cert, now, version, mtu)?)))
    }
}

#[cfg(feature = "openssl")]
type Engine = Box<dyn DtlsInstance>;
#[cfg(not(feature = "openssl"))]
type Engine = dimpl::Dtls;

#[cfg(feature = "openssl")]
fn engine(cert: &DtlsCert, now: Instant, version: DtlsVersion, mtu: Option<usize>) -> Result<Engine, CryptoError> {
    base().dtls_provider.new_dtls(cert, now, version, mtu)
}

/// What str0m's provider does, with one config for all callers: dimpl tests all of its cryptography whenever a config is made,
/// key exchanges on P-384 among it, which cost more than the handshake. X25519 alone, as browsers prefer it.
#[cfg(not(feature = "openssl"))]
fn engine(cert: &DtlsCert, now: Instant, version: DtlsVersion, mtu: Option<usize>) -> Result<Engine, CryptoError> {
    static CONFIG: OnceLock<(Option<usize>, Arc<dimpl::Config>)> = OnceLock::new();
    let failed = |error: &dyn fmt::Display| CryptoError::Other(format!("the callers' DTLS: {error}"));
    let build = || {
        // ICE has verified the address by then.
        let builder = dimpl::Config::builder().use_server_cookie(false).kx_groups(&[dimpl::NamedGroup::X25519]);
        let builder = if let Some(mtu) = mtu { builder.mtu(mtu) } else { builder };
        builder.build().map(Arc::new).map_err(|error| failed(&error))
    };
    let config = match CONFIG.get() {
        Some((shared, config)) if *shared == mtu => Arc::clone(config),
        _ => {
            let config = build()?;
            // Of two that come first at once one is built for nothing.
            let _ = CONFIG.set((mtu, Arc::clone(&config)));
            config
        }
    };
    match version {
        DtlsVersion::Dtls12 => Ok(dimpl::Dtls::new_12(config, cert.clone(), now)),
        DtlsVersion::Dtls13 => Ok(dimpl::Dtls::new_13(config, cert.clone(), now)),
        DtlsVersion::Auto => Ok(dimpl::Dtls::new_auto(config, cert.clone(), now)),
        other => Err(failed(&format_args!("{other} is not known"))),
    }
}

struct Tapped(Engine);

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tapped")
    }
}

impl DtlsInstance for Tapped {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        let client = self.0.is_active();
        let output = self.0.poll_output(buf);
        if let DtlsOutput::KeyingMaterial(material, profile) = &output {
            TAPPED.set(Some(Keys { profile: *profile, material: material.to_vec(), client }));
        }
        output
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<(), DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}
