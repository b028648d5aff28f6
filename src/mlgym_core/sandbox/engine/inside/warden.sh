# shellcheck shell=sh disable=SC2154,SC2086,SC2254,SC2034,SC1007  # eval sets variables; lists are to be split
# Kills what an action has started, from inside the box, with builtins alone: forking may no longer be possible.
# Says "ready <time>", then reads "supervisor shell since" (process ids, and when the action began) and answers "done".
# Times are hundredths of a second since boot, in the box's own clock: on a busy machine a request is read late, and
# whatever is counted from that moment misses what the action started first. When its input ends, the runner is dead,
# and everything goes.
me=$$
read -r up _ </proc/uptime
hundredths=${up#*.}
echo "ready $(( ${up%.*} * 100 + ${hundredths#0} ))"
scan() {
  all=
  for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    stat=
    {
      while IFS= read -r line || [ -n "$line" ]; do stat="$stat $line"; done <"$directory/stat"
    } 2>/dev/null || continue
    set -- ${stat##*) }
    case $1 in
      ''|X) continue;;
      # One whose first thread has ended looks like a zombie, and its other threads go on.
      Z)
        threads=0
        for thread in "$directory"/task/[0-9]*; do threads=$((threads + 1)); done
        [ $threads -gt 1 ] || continue
        ;;
    esac
    set -- ${stat##*) }
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
while read -r supervisor shell since; do
  cutoff=$(( since - 1 ))
  round=0 grown=0 before= quiet=0
  while [ $round -lt 300 ]; do
    round=$((round + 1))
    set -- /proc/[0-9]*
    # Too many to be looked at one by one, or breeding: all of this user's processes go, the supervisor excepted.
    if [ $# -gt 150 ] || [ $grown -gt 6 ]; then
      kill -9 -1 2>/dev/null
      grown=$((grown + 1))
      [ $grown -lt 40 ] || break
      continue
    fi
    scan
    choose
    # One that was being born during a look is seen by the next.
    if [ -z "$victims" ]; then
      quiet=$((quiet + 1))
      [ $quiet -lt 2 ] || break
      continue
    fi
    quiet=0
    # The same ones again are dying, not breeding; on a busy machine that takes a moment.
    [ "$victims" = "$before" ] || grown=$((grown + 1))
    before=$victims
    kill -9 $victims 2>/dev/null
  done
  echo 'done'
done
kill -9 -1
