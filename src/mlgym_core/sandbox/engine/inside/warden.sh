# Kills what an action has started, from inside the box, with builtins alone: forking may no longer be possible.
# Reads "supervisor shell age" (process ids and hundredths of a second) and answers "done". When its input ends, the
# runner is dead, and everything goes.
me=$$
echo ready
scan() {
  all=
  for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    stat=
    { while IFS= read -r line || [ -n "$line" ]; do stat="$stat $line"; done <"$directory/stat"; } 2>/dev/null || continue
    set -- ${stat##*) }
    case $1 in ''|Z|X) continue;; esac
    eval "parent_$pid=$2 start_$pid=${20}"
    all="$all $pid"
  done
}
choose() {
  victims=
  for pid in $all; do
    case $pid in 1|"$supervisor"|$me) continue;; esac
    eval "parent=\$parent_$pid start=\$start_$pid"
    if [ "$pid" != "$shell" ]; then
      [ "$start" -ge "$cutoff" ] || continue
      above=$parent
      while :; do
        case $above in
          1|"$supervisor"|"$shell") break;;
          0|''|$me) above=; break;;
        esac
        eval "higher=\$parent_$above begun=\$start_$above"
        [ "${begun:-0}" -ge "$cutoff" ] || { above=; break; }
        above=$higher
      done
      [ -n "$above" ] || continue
    fi
    victims="$victims $pid"
  done
}
while read -r supervisor shell age; do
  read -r up _ </proc/uptime
  hundredths=${up#*.}
  cutoff=$(( ${up%.*} * 100 + ${hundredths#0} - age - 1 ))
  round=0 grown=0 before=
  while [ $round -lt 300 ]; do
    round=$((round + 1))
    set -- /proc/[0-9]*
    if [ $# -gt 150 ] || [ $grown -gt 6 ]; then kill -9 -1 2>/dev/null; grown=$((grown + 1)); [ $grown -lt 40 ] || break; continue; fi
    scan
    choose
    [ -n "$victims" ] || break
    # The same ones again are dying, not breeding; on a busy machine that takes a moment.
    [ "$victims" = "$before" ] || grown=$((grown + 1))
    before=$victims
    kill -9 $victims 2>/dev/null
  done
  echo done
done
kill -9 -1
