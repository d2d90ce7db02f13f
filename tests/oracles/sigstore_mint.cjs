// Makes signatures with certificates by @sigstore/mock: a certificate authority, a certificate log and a timestamp
// authority of its own, with no network. Its log is left out, as what it logs is not what a Rekor logs.
// Standard input: {artifact, statement}, base64. Standard output: {identity, issuer, trusted_root (without logs),
// message, envelope}, the last two being {signature, certificate, timestamp}, base64 of DER.
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

const pair = () => crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });

function pae(type, body) {
    return Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${body.length} `), body]);
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
    process.stdout.write(JSON.stringify({ identity, issuer, trusted_root: root, message, envelope }));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
