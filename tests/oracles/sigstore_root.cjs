// A trusted root of the authorities of @sigstore/mock: its certificate authority, certificate log and timestamp authority, and no
// logs, which the tests add.
'use strict';
const { HashAlgorithm, PublicKeyDetails, TrustedRoot } = require('@sigstore/protobuf-specs');

const HOUR = 3600e3;

// `ca` and `stamps` are the mock's authorities at the addresses `fulcio` and `tsa`, `ctlog` is its certificate log; JSON.
function trustedRoot({ ca, fulcio, stamps, tsa, ctlog }) {
    const validFor = { start: new Date(Date.now() - HOUR) };
    const authority = (uri, certificates) => ({
        subject: { commonName: 'mock', organization: 'mock' },
        uri,
        certChain: { certificates: certificates.map((rawBytes) => ({ rawBytes: Buffer.from(rawBytes) })) },
        validFor,
    });
    const publicKey = { rawBytes: ctlog.publicKey, keyDetails: PublicKeyDetails.PKIX_ECDSA_P256_SHA_256, validFor };
    return TrustedRoot.toJSON({
        mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
        tlogs: [],
        certificateAuthorities: [authority(fulcio, [ca.rootCertificate])],
        ctlogs: [
            {
                baseUrl: 'https://ct.example.org',
                hashAlgorithm: HashAlgorithm.SHA2_256,
                publicKey,
                logId: { keyId: Buffer.from(ctlog.logID) },
            },
        ],
        timestampAuthorities: [authority(tsa, [stamps.intCertificate, stamps.rootCertificate])],
    });
}

module.exports = { trustedRoot };
