# counted.sh KEY PROGRAM [ARGUMENT...]: note in the log that KEY is executed, then be PROGRAM.
printf '%s %s\n' "$1" "$$" >>"${AGENTQ_DEMO_LOG:-/dev/null}"
shift
exec "$@"
