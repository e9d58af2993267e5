//! The keys and certificates of one control plane, made in process and thrown away with it. One authority signs the
//! server and every client; who a client is stands in its certificate (common name = user, organization = group).

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// A key or a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cryptography failed.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file could not be read or written.
    #[error("cannot access {}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the file system said.
        #[source]
        source: std::io::Error,
    },
}

/// What proves an identity, both in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs identities.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// The authority's own files below the control plane's folder.
pub(crate) const AUTHORITY_CERTIFICATE: &str = "pki/ca.crt";
const AUTHORITY_KEY: &str = "pki/ca.key";

impl Authority {
    /// A new authority, whose key and certificate are written below `folder`.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let parameters = authority_parameters();
        write(
            &folder.join(AUTHORITY_CERTIFICATE),
            &parameters.self_signed(&key)?.pem(),
        )?;
        write(&folder.join(AUTHORITY_KEY), &key.serialize_pem())?;
        Ok(Self {
            issuer: Issuer::new(parameters, key),
        })
    }

    /// The authority that was created in `folder`; `None` when there is none: somebody else's cluster.
    pub(crate) fn open(folder: &Path) -> Result<Option<Self>, Error> {
        let file = folder.join(AUTHORITY_KEY);
        match std::fs::read_to_string(&file) {
            // Only the key differs from one authority of ours to the next; a certificate need not be parsed.
            Ok(key) => Ok(Some(Self {
                issuer: Issuer::new(authority_parameters(), KeyPair::from_pem(&key)?),
            })),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::File { file, source }),
        }
    }

    /// An identity for a client.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, user);
        if let Some(group) = group {
            name.push(DnType::OrganizationName, group);
        }
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(parameters)
    }

    /// The API server's identity, under every name that a client on this machine or in a Pod calls it by.
    pub(crate) fn server(&self) -> Result<Identity, Error> {
        let names = [
            "127.0.0.1",
            "localhost",
            "10.0.0.1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let mut parameters = CertificateParams::new(names.map(str::to_owned))?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(parameters)
    }

    fn sign(&self, mut parameters: CertificateParams) -> Result<Identity, Error> {
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn authority_parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, "leasewarden-controlplane");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    parameters
}

/// Writes an identity as `pki/NAME.crt` and `pki/NAME.key`.
pub(crate) fn write_identity(folder: &Path, name: &str, identity: &Identity) -> Result<(), Error> {
    write(&folder.join(format!("pki/{name}.crt")), &identity.certificate)?;
    write(&folder.join(format!("pki/{name}.key")), &identity.key)
}

/// Writes the key pair that signs service account tokens, as `pki/sa.key` and `pki/sa.pub`.
pub(crate) fn write_service_account_key(folder: &Path) -> Result<(), Error> {
    let key = KeyPair::generate()?;
    write(&folder.join("pki/sa.key"), &key.serialize_pem())?;
    write(&folder.join("pki/sa.pub"), &key.public_key_pem())
}

fn write(file: &Path, content: &str) -> Result<(), Error> {
    let error = |source| Error::File {
        file: file.to_owned(),
        source,
    };
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(error)?;
    }
    std::fs::write(file, content).map_err(error)
}
