#!/usr/bin/env bash
# The step of action.yml that checks. MODELS, ARGS, FAIL_ON and SARIF come from its inputs.
set -u

trtconv=${TRTCONV:-$RUNNER_TEMP/trtconv/bin/trtconv}
args=()
if [[ $ARGS =~ [^[:space:]] ]]; then
  # xargs reads quotes as a shell does, and runs nothing of what it reads; it fails where a quote has no end.
  if ! split=$(printf '%s' "$ARGS" | xargs printf '%s\n'); then
    echo "error: the input 'args' of the action cannot be read: is a quote without its end?" >&2
    exit 2
  fi
  while IFS= read -r arg; do args+=("$arg"); done <<< "$split"
fi
models=()
while IFS= read -r model; do
  if [[ $model =~ [^[:space:]] ]]; then models+=("$model"); fi
done <<< "$MODELS"
if (( ${#models[@]} )); then
  args+=(--fail-on "$FAIL_ON" -- "${models[@]}")
fi

"$trtconv" check --quiet --format github ${args[@]+"${args[@]}"}
code=$?
if [[ -n $SARIF ]]; then
  "$trtconv" check --quiet --format sarif ${args[@]+"${args[@]}"} > "$SARIF"
fi
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
exit "$code"
