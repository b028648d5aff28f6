# shellcheck shell=sh
# Holds the box's standard streams and starts one shell after another on them. The token comes first, over stdin, so
# that no process list shows it; only a line that is exactly "go <token>" starts a shell, because a killed shell
# leaves the rest of its request behind.
IFS=' ' read -r token state || exit 0
trap : INT TERM HUP QUIT
exec 3>&2 2>/dev/null
(
  umask 077
  mkdir -p "$state"
)
if command -v bash >/dev/null; then
  dialect=bash
  set -- bash --noprofile --norc
else
  dialect=ash
  set -- sh
fi
printf '\036%s:\036' "$token" >&3
printf '\036%s:%s:%s\036' "$token" $$ "$dialect"
while IFS= read -r line; do
  [ "$line" = "go $token" ] || continue
  setsid env -i "$@" 2>&3 3>&-
  status=$?
  printf '\036%s:%s\036' "$token" "$status" >&3
  printf '\036%s:%s\036' "$token" "$status"
done
