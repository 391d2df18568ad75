#!/usr/bin/env bash
# The step of action.yml that checks. MODELS, ARGS, FAIL_ON and SARIF come from its inputs.
set -u

trtconv=${TRTCONV:-$RUNNER_TEMP/trtconv/bin/trtconv}
args=()
if [[ -n $ARGS ]]; then
  # xargs reads quotes as a shell does, and runs nothing of what it reads.
  while IFS= read -r -d '' arg; do args+=("$arg"); done < <(printf '%s' "$ARGS" | xargs printf '%s\0')
fi
models=()
while IFS= read -r model; do
  if [[ -n $model ]]; then models+=("$model"); fi
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
