// Serves the certificate authority and the timestamp authority of @sigstore/mock over HTTP on a free port of this machine,
// and its OIDC provider's word for one identity. The first line on standard output is {url, token, identity, issuer,
// trusted_root (without logs)}. It ends when standard input does.
'use strict';
const crypto = require('crypto');
const http = require('http');
const mock = require('@sigstore/mock');
const pkijs = require('pkijs');
const { trustedRoot } = require('./sigstore_root.cjs');

const identity = 'release@example.org';
const issuer = 'https://issuer.example.org';

function token() {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const exp = Math.floor(Date.now() / 1000) + 600;
    const claims = { sub: identity, email: identity, email_verified: true, iss: issuer, aud: 'sigstore', exp, iat: exp - 600 };
    return `${part({ alg: 'none' })}.${part(claims)}.x`;
}

const pair = () => crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });

// The mock's authority, with a clock that goes, in whole seconds as other readers ask, and the nonce that was sent.
async function stampAuthority() {
    const authority = await mock.initializeTSA(pair());
    const info = authority.tstInfo.bind(authority);
    authority.getCurrentTime = () => new Date(Math.floor(Date.now() / 1000) * 1000);
    authority.tstInfo = (request) => Object.assign(info({ ...request, nonce: 0 }), { nonce: request.nonce });
    return authority;
}

// Answers the query of RFC 3161; the mock's own handler takes JSON.
async function stamp(authority, query) {
    const request = pkijs.TimeStampReq.fromBER(query);
    const response = await authority.timestamp({
        artifactHash: Buffer.from(request.messageImprint.hashedMessage.valueBlock.valueHexView),
        hashAlgorithmOID: request.messageImprint.hashAlgorithm.algorithmId,
        nonce: request.nonce,
        policyOID: '1.3.6.1.4.1.57264.2',
        certReq: request.certReq ?? false,
    });
    return { statusCode: 201, response, contentType: 'application/timestamp-reply' };
}

async function main() {
    const ctlog = await mock.initializeCTLog(pair());
    const ca = await mock.initializeCA(pair(), ctlog);
    const stamps = await stampAuthority();
    const certify = mock.fulcioHandler(ca);
    const handlers = new Map([
        [certify.path, certify.fn],
        ['/api/v1/timestamp', (query) => stamp(stamps, query)],
    ]);

    const server = http.createServer((request, answer) => {
        const chunks = [];
        request.on('data', (chunk) => chunks.push(chunk));
        request.on('end', async () => {
            const handler = handlers.get(request.url);
            const made = handler ? await handler(Buffer.concat(chunks)) : { statusCode: 404, response: 'no such path' };
            answer.writeHead(made.statusCode, { 'Content-Type': made.contentType || 'text/plain' });
            answer.end(made.response);
        });
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${server.address().port}`;

    const root = trustedRoot({ ca, fulcio: url, stamps, tsa: url, ctlog });
    process.stdout.write(`${JSON.stringify({ url, token: token(), identity, issuer, trusted_root: root })}\n`);
    process.stdin.resume();
    process.stdin.on('end', () => process.exit(0));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
