
# Names of running objects, which the daemon knows.
function __fish_ashlar_live
    set -l typed (commandline -opc)
    command ashlar complete $typed[2..-1] 2>/dev/null
end

complete -c ashlar -a '(__fish_ashlar_live)'
for option in target up down
    complete -c ashlar -l $option -r -a '(__fish_ashlar_live)'
end
