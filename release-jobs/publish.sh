#!/bin/sh
# Publishes the debug symbols of a release: every platform's job runs `publish.sh part`, and when all are done one job runs
# `publish.sh join`. The parts stay unsealed: only the join job needs the key, and what it signs is the whole.
#
#   publish.sh part PATH...   builds the release of this platform (SYMSEAL_BUILD), then publishes these files and directories
#   publish.sh join           joins the parts, seals the bundle once and attaches it to the product's container image
#
# Environment, both:
#   SYMSEAL_NAME        the release's name
#   SYMSEAL_VERSION     its version; also the beginning of the tags, in which _ stands for what tags cannot have (1.0+7: 1.0_7)
#   SYMSEAL_REPOSITORY  host[:port]/repository for parts and bundle: the product image's own
#   SYMSEAL             the program; default: symseal
#   SYMSEAL_SOURCES_TO  reference for the sources, in a repository of its own; default: beside the bundle, under its tag and .sources
# Environment, part:
#   SYMSEAL_PLATFORM    the part's name; default: system and machine, such as linux-x86_64
#   SYMSEAL_SOURCES     directory of the sources that the line tables name; default: no sources are published
#   SYMSEAL_SOURCE_MAP  FROM=TO: where in it the files of a directory in the line tables lie; default: by their own paths
#   SYMSEAL_OPTIONS     further options of symseal publish, separated by blanks, such as --strict; default: none
#   SYMSEAL_BUILD       command that builds the release, run by sh -c; default: nothing is built
# Environment, join:
#   SYMSEAL_PARTS       what the part jobs printed, separated by blanks or line ends
#   SYMSEAL_KEY         the artifact key's file
#   SYMSEAL_LOG         the log's directory; default: symseal's
#   SYMSEAL_IMAGE       the product's image in SYMSEAL_REPOSITORY, by tag or (better) digest; default: attached to nothing
#   SYMSEAL_TAG         the bundle's tag; default: SYMSEAL_VERSION-symbols
# Credentials for the registry: those of docker login, podman login or oras login, or SYMSEAL_REGISTRY (its host),
# SYMSEAL_REGISTRY_USER and SYMSEAL_REGISTRY_PASSWORD.
#
# Standard output: one line, the reference by digest of what was published. Everything else goes to standard error.
# Exit status: symseal's. 0 published; 1 the answer is no, such as a part or image that is not there; 2 the call, the
# environment or an input is wrong; that of SYMSEAL_BUILD where that fails.
# No names are expanded: an option may be a pattern.
set -euf

program=${SYMSEAL:-symseal}

fail() {
    printf 'publish.sh: %s\n' "$1" >&2
    exit 2
}

need() { # variables that must not be empty
    for variable; do
        eval "value=\${$variable:-}"
        [ -n "$value" ] || fail "$variable is not set; the head of $0 says what it is"
    done
}

tag() { # a text as a tag can have it
    printf '%s' "$1" | LC_ALL=C tr -c 'A-Za-z0-9._-' '_'
}

# Runs `symseal publish`, shows what it says on standard error, and prints the reference by digest.
publish() {
    command -v "$program" >/dev/null || fail "expected the program $program (SYMSEAL), found none"
    report=$(mktemp) || fail "no temporary file can be made; TMPDIR says where"
    trap 'rm -f "$report"' EXIT
    status=0
    "$program" publish "$@" >"$report" || status=$?
    cat "$report" >&2
    [ "$status" -eq 0 ] || exit "$status"
    digest=$(sed -n 's/^bundle \(sha256:[0-9a-f]*\)$/\1/p' "$report")
    [ -n "$digest" ] || fail "$program did not say which bundle it published"
    printf '%s@%s\n' "$SYMSEAL_REPOSITORY" "$digest"
}

part() {
    [ $# -gt 0 ] || fail "part: expected the files and directories of the release"
    platform=${SYMSEAL_PLATFORM:-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)}
    if [ -n "${SYMSEAL_BUILD:-}" ]; then
        sh -c "$SYMSEAL_BUILD" >&2 || exit $?
    fi
    set -- --name "$SYMSEAL_NAME" --version "$SYMSEAL_VERSION" \
        --to "$SYMSEAL_REPOSITORY:$(tag "$SYMSEAL_VERSION-$platform")" -- "$@"
    if [ -n "${SYMSEAL_SOURCES:-}" ]; then
        [ -z "${SYMSEAL_SOURCES_TO:-}" ] || set -- --sources-to "$SYMSEAL_SOURCES_TO" "$@"
        [ -z "${SYMSEAL_SOURCE_MAP:-}" ] || set -- --source-map "$SYMSEAL_SOURCE_MAP" "$@"
        set -- --sources "$SYMSEAL_SOURCES" "$@"
    fi
    # Options are split at blanks.
    # shellcheck disable=SC2086
    [ -z "${SYMSEAL_OPTIONS:-}" ] || set -- $SYMSEAL_OPTIONS "$@"
    publish "$@"
}

join() {
    [ $# -eq 0 ] || fail "join: the parts are named by SYMSEAL_PARTS, found the argument $1"
    need SYMSEAL_PARTS SYMSEAL_KEY
    # References hold no blanks.
    # shellcheck disable=SC2086
    set -- --join $SYMSEAL_PARTS --name "$SYMSEAL_NAME" --version "$SYMSEAL_VERSION" --key "$SYMSEAL_KEY" \
        --to "$SYMSEAL_REPOSITORY:${SYMSEAL_TAG:-$(tag "$SYMSEAL_VERSION-symbols")}"
    [ -z "${SYMSEAL_LOG:-}" ] || set -- "$@" --log "$SYMSEAL_LOG"
    [ -z "${SYMSEAL_SOURCES_TO:-}" ] || set -- "$@" --sources-to "$SYMSEAL_SOURCES_TO"
    [ -z "${SYMSEAL_IMAGE:-}" ] || set -- "$@" --subject "$SYMSEAL_IMAGE"
    publish "$@"
}

step=${1:-}
[ $# -eq 0 ] || shift
case $step in
part | join)
    need SYMSEAL_NAME SYMSEAL_VERSION SYMSEAL_REPOSITORY
    "$step" "$@"
    ;;
*) fail "expected part or join, found '${step}'; the head of $0 says what they do" ;;
esac
