//! Names over `/api/v1/resolve`, held to llvm-symbolizer and to the published schema.

use std::path::PathBuf;

use crate::support::programs::{Fixture, has, output, publish, run};
use reqwest::StatusCode;
use serde_json::{Value, json};

const PROGRAM: &str = "static inline __attribute__((always_inline)) int twice(int x) { return 2 * x + (x >> 3); }\n\
__attribute__((noinline)) int four(int x) {\n    int y = twice(x);\n    return twice(y) ^ 5;\n}\n\
int main(int argc, char **argv) { return four(argc); }\n";
const ID: &str = "0102030405060708090a0b0c0d0e0f1011121314";

fn schema(part: &str) -> jsonschema::Validator {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/formats/schemas/resolve.schema.json");
    let mut schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    schema.as_object_mut().unwrap().remove("oneOf");
    schema["$ref"] = json!(format!("#/$defs/{part}"));
    jsonschema::validator_for(&schema).unwrap()
}

#[tokio::test]
async fn an_id_that_cannot_be_read_is_refused_and_one_that_nobody_published_is_an_answer() {
    let fixture = Fixture::new().await;
    let ask = async |platform: &str, setting: &str, id: &str| -> (StatusCode, Value) {
        let mut body = json!({"platform": platform, "code_file": "app.exe", "addresses": ["0x140001010"]});
        body[setting] = id.into();
        let url = fixture.server.url("/api/v1/resolve");
        let answer = fixture.http.post(url).json(&body).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    };
    let guid = "72E103A85CB249078B76B2E7C06257B1";
    for (platform, setting, id, form) in [
        ("linux", "debug_id", "hello", "build-id"),
        ("linux", "debug_id", "", "build-id"),
        ("linux", "code_id", "72E103A85CB249078B76B2E7C06257B13", "build-id"),
        ("windows", "debug_id", guid, "GUID-AGE"),
        ("windows", "debug_id", "72E103A8-5CB2-4907-8B76-B2E7C06257B1", "GUID-AGE"),
        ("windows", "debug_id", ID, "GUID-AGE"),
        ("windows", "code_id", "app.exe", "time stamp"),
        ("macos", "debug_id", "72E103A85CB249078B76B2E7C06257B1-3", "UUID"),
    ] {
        let (status, answer) = ask(platform, setting, id).await;
        assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!("resolve-invalid")), "{id}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("{setting} {id:?}")) && message.contains(form), "{message}");
    }
    let known_as = format!("{}-3", guid.to_lowercase());
    for id in [format!("{guid}-3"), format!("{guid}3"), "72E103A8-5CB2-4907-8B76-B2E7C06257B1-3".to_owned()] {
        let (status, answer) = ask("windows", "debug_id", &id).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::OK, &json!("not-in-bundle")), "{id}");
        assert_eq!(answer["debug_id"].as_str().unwrap().to_lowercase(), known_as, "{id}");
    }
}

#[tokio::test]
async fn a_question_that_is_packed_is_415_and_says_so() {
    let fixture = Fixture::new().await;
    for path in ["/symbolicate/v5", "/api/v1/resolve"] {
        let ask = async |coding: &str| {
            let request = fixture.http.post(fixture.server.url(path)).header("Content-Encoding", coding);
            let answer = request.body(&b"\x1f\x8b\x08 packed"[..]).send().await.unwrap();
            (answer.status(), answer.json::<Value>().await.unwrap().to_string())
        };
        let (status, told) = ask("gzip").await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}: {told}");
        assert!(told.contains("Content-Encoding") && told.contains("gzip"), "{path}: {told}");
        assert_eq!(ask("identity").await.0, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn addresses_are_named_as_by_llvm_symbolizer_and_each_name_says_what_it_rests_on() {
    if !has("cc") || !has("llvm-symbolizer") || !has("nm") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let (source, binary) = (folder.join("named.c"), folder.join("named"));
    std::fs::write(&source, PROGRAM).unwrap();
    let id = format!("-Wl,--build-id=0x{ID}");
    // An image base that is not zero, so that the two kinds of addresses differ.
    run("cc", &["-O2", "-g", "-no-pie", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
    let bundle = publish(&fixture.server, folder, "1", &[&binary]).await;
    let (asks, answers) = (schema("request"), schema("answer"));
    let ask = async |request: Value| -> (StatusCode, Value) {
        let url = fixture.server.url("/api/v1/resolve");
        let answer = fixture.http.post(url).json(&request).send().await.unwrap();
        let status = answer.status();
        let value: Value = answer.json().await.unwrap();
        if status == StatusCode::OK {
            assert!(asks.is_valid(&request), "{request}");
            assert!(
                answers.is_valid(&value),
                "{:?}",
                answers.iter_errors(&value).map(|error| error.to_string()).collect::<Vec<_>>()
            );
        }
        (status, value)
    };

    let symbols = output("nm", &["-S", binary.to_str().unwrap()]);
    let line = symbols.lines().find(|line| line.ends_with(" four")).unwrap();
    let numbers: Vec<u64> = line.split(' ').take(2).map(|number| u64::from_str_radix(number, 16).unwrap()).collect();
    let addresses: Vec<String> = (numbers[0]..numbers[0] + numbers[1]).map(|address| format!("{address:#x}")).collect();
    let (status, answer) = ask(json!({"platform": "linux", "debug_id": ID, "addresses": addresses})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["provenance"]["bundle"], bundle.to_string());
    assert!(answer["provenance"]["seal"].is_null());
    let frames = answer["frames"].as_array().unwrap();
    assert_eq!(frames.len(), addresses.len());
    let mut inlined = 0;
    for (frame, address) in frames.iter().zip(&addresses) {
        assert_eq!((&frame["address"], &frame["resolver"]), (&json!(address), &json!("local-bundle")));
        assert_eq!((&frame["proof"], &frame["bundle"]), (&json!("digest-known"), &json!(bundle.to_string())));
        assert_eq!(frame["table"], answer["provenance"]["table"]);
        let expected = output("llvm-symbolizer", &["--output-style=JSON", "-e", binary.to_str().unwrap(), address]);
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let expected = if expected.is_array() { &expected[0] } else { &expected };
        let expected: Vec<(Value, Value)> = expected["Symbol"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| (frame["FunctionName"].clone(), frame["Line"].clone()))
            .collect();
        let found: Vec<(Value, Value)> = frame["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| {
                (frame["function"].clone(), if frame["line"].is_null() { json!(0) } else { frame["line"].clone() })
            })
            .collect();
        assert_eq!(found, expected, "{address}");
        inlined += usize::from(found.len() > 1);
    }
    assert!(inlined > 0);

    // The same from the image base, by the code id, and what is not known.
    let base = u64::from_str_radix(answer["image_base"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    assert!(base > 0);
    let offset = format!("{:#x}", numbers[0] - base);
    let (_, by_rva) = ask(
        json!({"platform": "linux", "code_id": ID.to_uppercase(), "address_kind": "rva", "addresses": [offset, "0x0"]}),
    )
    .await;
    assert_eq!(by_rva["frames"][0]["frames"], frames[0]["frames"]);
    assert_eq!(by_rva["frames"][1]["reason"], "no-symbol-at-address");
    assert!(by_rva["frames"][1]["bundle"].is_null());
    let (_, below) = ask(json!({"platform": "linux", "debug_id": ID, "addresses": ["0x0"]})).await;
    assert_eq!(
        (&below["frames"][0]["quality"], &below["frames"][0]["proof"]),
        (&json!("module-offset"), &json!("none"))
    );
    let (status, unknown) = ask(json!({"platform": "linux", "debug_id": "ab", "addresses": ["0x1"]})).await;
    assert_eq!((status, &unknown["reason"]), (StatusCode::OK, &json!("not-in-bundle")));
    assert_eq!(unknown["frames"][0]["reason"], "not-in-bundle");
    for request in [
        json!({}),
        json!([]),
        json!({"platform": "linux", "addresses": []}),
        json!({"platform": "linux", "debug_id": ID, "addresses": [1]}),
    ] {
        assert_eq!(ask(request.clone()).await.0, StatusCode::BAD_REQUEST, "{request}");
        assert!(!asks.is_valid(&request), "{request}");
    }
    let many = vec!["0x1"; 100_001];
    assert_eq!(
        ask(json!({"platform": "linux", "debug_id": ID, "addresses": many})).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}
