from gaudi_launch.cli.main import main

if __name__ == "__main__":
    main()
