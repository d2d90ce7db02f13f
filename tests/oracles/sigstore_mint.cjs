// Makes signatures with certificates by @sigstore/mock: a certificate authority, a certificate log and a timestamp
// authority of its own, with no network. Its log is left out, as what it logs is not what a Rekor logs.
// Standard input: {artifact, statement}, base64, and {keys}: names of further kinds of keys. Standard output: {identity, issuer,
// trusted_root (without logs), message, envelope, keys}, message and envelope being {signature, certificate, timestamp}, base64
// of DER; keys has both for each name, with {hash, digest} of what was signed, base64.
'use strict';
const nock = require('nock');
const mock = require('@sigstore/mock');
const sign = require('@sigstore/sign');
const crypto = require('crypto');
const { trustedRoot } = require('./sigstore_root.cjs');

const identity = 'dev@example.org';
const issuer = 'https://issuer.example.org';
const [fulcio, tsa] = ['https://fulcio.example.org', 'https://tsa.example.org'];

function serve(base, handler) {
    nock(base)
        .persist()
        .post(handler.path)
        .reply(async (_, body) => {
            const answer = await handler.fn(typeof body === 'string' ? body : JSON.stringify(body));
            return [answer.statusCode, answer.response, { 'Content-Type': answer.contentType || 'text/plain' }];
        });
}

function token() {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const claims = { sub: identity, email: identity, email_verified: true, iss: issuer, aud: 'sigstore' };
    return `${part({ alg: 'none' })}.${part(claims)}.x`;
}

// What the mock's authority is to take for a key, by which digest it signs, and how it is made.
const KEYS = {
    'P-384': [{ name: 'ECDSA', namedCurve: 'P-384' }, 'sha384', 'ec', { namedCurve: 'P-384' }],
    'P-384 with SHA-256': [{ name: 'ECDSA', namedCurve: 'P-384' }, 'sha256', 'ec', { namedCurve: 'P-384' }],
    'RSA 2048': [{ name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }, 'sha256', 'rsa', { modulusLength: 2048 }],
};
const OIDC_ISSUER = '1.3.6.1.4.1.57264.1.8';

const pair = () => crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });

function pae(type, body) {
    return Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${body.length} `), body]);
}

// As `make` below, with a key that the mock's signer does not make; its authority reads every key by one constant.
async function makeWith(name, ca, authority, data) {
    const [algorithm, hash, type, options] = KEYS[name];
    const { publicKey, privateKey } = crypto.generateKeyPairSync(type, options);
    require('@sigstore/mock/dist/constants').KEY_ALGORITHM_ECDSA_P256 = algorithm;
    const certificate = await ca.issueCertificate({
        publicKey: publicKey.export({ type: 'spki', format: 'der' }),
        subjectAltName: identity,
        extensions: [{ oid: OIDC_ISSUER, value: issuer }],
    });
    const signature = crypto.sign(hash, data, privateKey);
    const artifactHash = crypto.createHash('sha256').update(signature).digest('base64');
    const request = JSON.stringify({ artifactHash, hashAlgorithm: 'sha256', certificates: true });
    const stamped = await mock.tsaHandler(authority).fn(request);
    return {
        signature: signature.toString('base64'),
        certificate: Buffer.from(certificate).toString('base64'),
        timestamp: Buffer.from(stamped.response).toString('base64'),
        hash,
        digest: crypto.createHash(hash).update(data).digest('base64'),
    };
}

async function main() {
    nock.disableNetConnect();
    const input = JSON.parse(require('fs').readFileSync(0, 'utf8'));
    const ctlog = await mock.initializeCTLog(pair());
    const ca = await mock.initializeCA(pair(), ctlog);
    // A whole second: other readers refuse the fractions that the mock would write.
    const clock = new Date(Math.ceil(Date.now() / 1000) * 1000);
    const authority = await mock.initializeTSA(pair(), clock);
    serve(fulcio, mock.fulcioHandler(ca));
    serve(tsa, mock.tsaHandler(authority));

    const root = trustedRoot({ ca, fulcio, stamps: authority, tsa, ctlog });

    const make = async (data) => {
        const signer = new sign.FulcioSigner({ fulcioBaseURL: fulcio, identityProvider: { getToken: async () => token() } });
        const { key, signature } = await signer.sign(data);
        const content = { $case: 'messageSignature', messageSignature: { signature } };
        const stamped = await new sign.TSAWitness({ tsaBaseURL: tsa }).testify(content);
        const pem = key.certificate.split('-----END CERTIFICATE-----')[0];
        return {
            signature: signature.toString('base64'),
            certificate: pem.replace('-----BEGIN CERTIFICATE-----', '').replace(/\s/g, ''),
            timestamp: Buffer.from(stamped.rfc3161Timestamps[0].signedTimestamp).toString('base64'),
        };
    };
    const message = await make(Buffer.from(input.artifact, 'base64'));
    const envelope = await make(pae('application/vnd.in-toto+json', Buffer.from(input.statement, 'base64')));
    const keys = {};
    for (const name of input.keys || []) {
        keys[name] = {
            message: await makeWith(name, ca, authority, Buffer.from(input.artifact, 'base64')),
            envelope: await makeWith(name, ca, authority, pae('application/vnd.in-toto+json', Buffer.from(input.statement, 'base64'))),
        };
    }
    process.stdout.write(JSON.stringify({ identity, issuer, trusted_root: root, message, envelope, keys }));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
