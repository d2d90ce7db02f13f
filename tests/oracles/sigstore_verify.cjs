// Asks @sigstore/verify about bundles. Standard input: a JSON list of
// {bundle, trusted_root, key | identity and issuer, artifact (base64, may be missing)}, the first two as text.
// Standard output: a JSON list of "" where it accepts, else of its reason.
'use strict';
const crypto = require('crypto');
const { bundleFromJSON } = require('@sigstore/bundle');
const { TrustedRoot } = require('@sigstore/protobuf-specs');
const { toSignedEntity, toTrustMaterial, Verifier } = require('@sigstore/verify');

function ask(one) {
    const bundle = bundleFromJSON(JSON.parse(one.bundle));
    const root = TrustedRoot.fromJSON(JSON.parse(one.trusted_root));
    const key = one.key && { publicKey: crypto.createPublicKey(one.key), validFor: () => true };
    const material = toTrustMaterial(root, () => key);
    const certificate = bundle.verificationMaterial.content.$case !== 'publicKey';
    if (certificate === Boolean(one.key)) throw new Error('a bundle of the other kind');
    const thresholds = { tlogThreshold: 1, ctlogThreshold: 1, timestampThreshold: one.key ? 0 : 1 };
    const policy = one.key ? undefined : { subjectAlternativeName: literally(one.identity), extensions: { issuer: one.issuer } };
    const artifact = one.artifact === undefined ? undefined : Buffer.from(one.artifact, 'base64');
    new Verifier(material, thresholds).verify(toSignedEntity(bundle, artifact), policy);
}

// The name is a regular expression there.
function literally(text) {
    return `^${text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
}

const answers = JSON.parse(require('fs').readFileSync(0, 'utf8')).map((one) => {
    try {
        ask(one);
        return '';
    } catch (error) {
        return String(error.message || error.name).slice(0, 300) || 'refused';
    }
});
process.stdout.write(JSON.stringify(answers));
